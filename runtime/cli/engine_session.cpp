#include "runtime/cli/engine_session.hpp"

#include <oneapi/tbb/global_control.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "io/container/file_handle.hpp"
#include "runtime/cli/kernel_choice.hpp"

namespace colibri::cli {

namespace fs = std::filesystem;

struct EngineSession::Threads {
  explicit Threads(std::size_t slots) : control(tbb::global_control::max_allowed_parallelism, slots) {}
  tbb::global_control control;
};

EngineSession::EngineSession() = default;
EngineSession::~EngineSession() = default;

namespace {

void add_files_of_stages(const PipelineSpec& pipeline, std::vector<JobFile>& files) {
  const Registry registry = builtin_registry();
  for (const StageSpec& stage : pipeline.stages) {
    const StageKind* kind = registry.find(stage.kind);
    if (kind == nullptr) continue;
    for (const ParamInfo& param : kind->info->params) {
      if (param.unit != kOutputFileUnit) continue;
      files.push_back({"stages." + stage.name + "." + std::string(param.name),
                       std::string(effective_param(stage, *kind->info, param.name)), true});
    }
  }
}

// The library writes nothing that it was not asked for; the program has a place for it.
void choose_state_dir(PipelineSpec& pipeline) {
  if (pipeline.state_dir_origin.kind != Origin::Kind::default_value) return;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    pipeline.state_dir = (fs::path(cache) / "colibri").string();
  }
}

}  // namespace

Result<PipelineSpec> checked_pipeline(const PipelineFlags& flags, const Registry& registry,
                                      VerbContext& context) {
  COLIBRI_ASSIGN_OR_RETURN(LoadedPipeline loaded, load_pipeline(flags, registry.infos()));
  if (loaded.problems.lines.empty()) return std::move(loaded.spec);
  for (const std::string& problem : loaded.problems.lines) context.console.write_report(problem + "\n");
  return Status(ErrorCode::invalid_input,
                "the pipeline has problems: " + std::to_string(loaded.problems.lines.size()) +
                    "; see above, and `colibri check FILE`");
}

Result<std::unique_ptr<EngineSession>> EngineSession::open(const std::string& model,
                                                           const PipelineFlags& flags, VerbContext& context,
                                                           SessionOptions options) {
  COLIBRI_ASSIGN_OR_RETURN(PipelineSpec pipeline, checked_pipeline(flags, builtin_registry(), context));
  if (takes_hidden_states(pipeline)) {
    return Status(ErrorCode::invalid_input, "this pipeline takes hidden states, not requests: " + flags.file +
                                                "; run it with: colibri run " + flags.file +
                                                " --input FILE --output FILE");
  }
  options.files.push_back({"the pipeline", flags.file});
  return open(model, std::move(pipeline), context, std::move(options));
}

Result<std::unique_ptr<EngineSession>> EngineSession::open(const std::string& model, PipelineSpec pipeline,
                                                           VerbContext& context, SessionOptions added) {
  COLIBRI_ASSIGN_OR_RETURN(const kernels::KernelTable* kernels, kernels_of_environment());
  std::unique_ptr<EngineSession> session(new EngineSession);
  session->profile_output_ = pipeline.profile.output;
  added.files.push_back({"the profile", session->profile_output_, true});
  add_files_of_stages(pipeline, added.files);
  COLIBRI_RETURN_IF_ERROR(check_job_files(model, added.files));
  choose_state_dir(pipeline);
  if (!session->profile_output_.empty()) COLIBRI_RETURN_IF_ERROR(check_writable(session->profile_output_));
  EngineOptions options;
  options.kernels = kernels->name;
  options.before_loading = std::move(added.before_loading);
  options.workload = std::move(added.workload);
  options.stopping = std::move(added.stopping);
  options.log = [&console = context.console](const std::string& line) { console.info(line); };
  COLIBRI_ASSIGN_OR_RETURN(session->engine_, Engine::open(model, std::move(pipeline), std::move(options)));
  session->threads_ = std::make_unique<Threads>(1 + session->engine_->worker_slots());
  return session;
}

Status EngineSession::write_profile(const RunReport& report) const {
  if (profile_output_.empty()) return {};
  std::error_code ignored;
  if (!fs::exists(profile_output_, ignored) || fs::is_regular_file(profile_output_, ignored)) {
    return write_text_file(profile_output_, report.to_json());
  }
  // A device or pipe is written to, never replaced.
  std::ofstream device(profile_output_, std::ios::binary);
  device << report.to_json() << std::flush;
  return device ? Status() : Status(ErrorCode::io, "cannot write the profile: " + profile_output_);
}

Status check_writable(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return {ErrorCode::invalid_input, "this is a folder, not a file to write: " + path + "; name a file"};
  }
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  const fs::path asked = fs::exists(path, ignored) ? fs::path(path) : folder;
  if (::access(asked.c_str(), W_OK) == 0) return {};
  return {ErrorCode::io, "cannot write the file: " + path + ": " + std::strerror(errno) + "; check the path"};
}

}  // namespace colibri::cli
