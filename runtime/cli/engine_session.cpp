#include "runtime/cli/engine_session.hpp"

#include <oneapi/tbb/global_control.h>

#include <utility>

#include "io/container/file_handle.hpp"
#include "runtime/cli/kernel_choice.hpp"

namespace colibri::cli {

struct EngineSession::Threads {
  explicit Threads(std::size_t slots) : control(tbb::global_control::max_allowed_parallelism, slots) {}
  tbb::global_control control;
};

EngineSession::EngineSession() = default;
EngineSession::~EngineSession() = default;

Result<PipelineSpec> checked_pipeline(const PipelineFlags& flags, const Registry& registry, VerbContext& context) {
  COLIBRI_ASSIGN_OR_RETURN(LoadedPipeline loaded, load_pipeline(flags, registry.infos()));
  if (loaded.problems.lines.empty()) return std::move(loaded.spec);
  for (const std::string& problem : loaded.problems.lines) context.console.write_report(problem + "\n");
  return Status(ErrorCode::invalid_input, "the pipeline has problems: " + std::to_string(loaded.problems.lines.size()) +
                                              "; see above, and `colibri check FILE`");
}

Result<std::unique_ptr<EngineSession>> EngineSession::open(const std::string& model, const PipelineFlags& flags,
                                                           VerbContext& context) {
  const Registry registry = builtin_registry();
  COLIBRI_ASSIGN_OR_RETURN(PipelineSpec pipeline, checked_pipeline(flags, registry, context));
  COLIBRI_ASSIGN_OR_RETURN(const kernels::KernelTable* kernels, choose_kernels());
  std::unique_ptr<EngineSession> session(new EngineSession);
  session->profile_output_ = pipeline.profile.output;
  // Placements on CPUs of their own add their slots to those of the default one.
  std::size_t placed = 0;
  for (const StageSpec& stage : pipeline.stages) placed += stage.cpus.size();
  EngineOptions options;
  options.kernels = kernels->name;
  options.log = [&console = context.console](const std::string& line) { console.info(line); };
  COLIBRI_ASSIGN_OR_RETURN(session->engine_, Engine::open(model, std::move(pipeline), std::move(options)));
  session->threads_ = std::make_unique<Threads>(1 + session->engine_->worker_slots() + placed);
  return session;
}

Status EngineSession::write_profile(const RunReport& report) const {
  if (profile_output_.empty()) return {};
  return write_text_file(profile_output_, report.to_json());
}

}  // namespace colibri::cli
