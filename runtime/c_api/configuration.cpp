#include "runtime/c_api/configuration.hpp"

#include <utility>
#include <vector>

namespace colibri::c_api {
namespace {

constexpr std::uint64_t kMaximumSettings = 1000;
constexpr std::uint64_t kMaximumSettingBytes = 64 * 1024;
constexpr std::string_view kPurposes = "COLIBRI_PURPOSE_TEXT or COLIBRI_PURPOSE_BLOCKS";

Override setting(std::string path, std::string value, std::string origin) {
  return {std::move(path), std::move(value), {.kind = Origin::Kind::command_line, .file = std::move(origin)}};
}

// A number of the config, where 0 stands for what the pipeline or the library chooses.
void add_number(std::vector<Override>& settings, const char* path, std::uint64_t value, const char* field) {
  if (value != 0) settings.push_back(setting(path, std::to_string(value), std::string("config.") + field));
}

// Slots are counted by the host, and given in bytes to the pipeline.
Status add_slots(const colibri_config& config, const std::string& model, std::vector<Override>& settings) {
  if (config.expert_slots == 0) return {};
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(model));
  const std::uint64_t record_bytes = container->layout().record_bytes;
  const auto bytes = checked_mul(config.expert_slots, record_bytes);
  if (!bytes) {
    return {ErrorCode::invalid_input, "more slots than memory can be addressed: config.expert_slots is " +
                                          std::to_string(config.expert_slots) + ", of " +
                                          std::to_string(record_bytes) + " bytes each; ask for fewer"};
  }
  add_number(settings, "memory.experts", *bytes, "expert_slots");
  return {};
}

Status add_settings(const colibri_config& config, std::vector<Override>& settings) {
  if (config.num_settings > kMaximumSettings) {
    return {ErrorCode::invalid_input, "too many settings: config.num_settings is " +
                                          std::to_string(config.num_settings) + "; expected at most " +
                                          std::to_string(kMaximumSettings)};
  }
  if (config.num_settings > 0) {
    COLIBRI_RETURN_IF_ERROR(check_pointer(config.settings, alignof(const char*), "config.settings"));
  }
  for (std::uint64_t i = 0; i < config.num_settings; ++i) {
    const std::string name = "config.settings[" + std::to_string(i) + "]";
    COLIBRI_ASSIGN_OR_RETURN(const std::string text,
                             read_text(config.settings[i], kMaximumSettingBytes, name));
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return {ErrorCode::invalid_input, "a setting is no PATH=VALUE: " + name + " is '" + text +
                                            "'; expected as in stages.fetch.lanes=16"};
    }
    settings.push_back(setting(text.substr(0, equals), text.substr(equals + 1), name));
  }
  return {};
}

Result<std::vector<Override>> settings_of(const colibri_config& config, const std::string& model) {
  std::vector<Override> settings;
  add_number(settings, "threads", config.threads, "threads");
  add_number(settings, "memory.static", config.static_bytes, "static_bytes");
  add_number(settings, "memory.dynamic", config.dynamic_bytes, "dynamic_bytes");
  add_number(settings, "memory.scratch", config.scratch_bytes, "scratch_bytes");
  add_number(settings, "steps.max_rows", config.max_rows, "max_rows");
  add_number(settings, "steps.wave_rows", config.wave_rows, "wave_rows");
  COLIBRI_RETURN_IF_ERROR(add_slots(config, model, settings));
  if (config.state_dir != nullptr) {
    COLIBRI_ASSIGN_OR_RETURN(std::string folder,
                             read_text(config.state_dir, kMaximumPathBytes, "config.state_dir"));
    settings.push_back(setting("state_dir", std::move(folder), "config.state_dir"));
  }
  // Last: what is set by name goes before the fields.
  COLIBRI_RETURN_IF_ERROR(add_settings(config, settings));
  return settings;
}

Result<PipelineSpec> pipeline_of(const colibri_config& config, const std::string& model) {
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<Override> settings, settings_of(config, model));
  std::string yaml(config.purpose == COLIBRI_PURPOSE_TEXT ? default_pipeline_yaml() : block_pipeline_yaml());
  std::string name = "built-in";
  if (config.pipeline != nullptr) {
    COLIBRI_ASSIGN_OR_RETURN(yaml, read_text(config.pipeline, kMaximumPipelineBytes, "config.pipeline"));
    name = "config.pipeline";
  }
  const Registry registry = builtin_registry();
  PipelineProblems problems;
  PipelineSpec pipeline = parse_pipeline(yaml, name, registry.infos(), settings, problems);
  check_pipeline(pipeline, registry.infos(), problems);
  COLIBRI_RETURN_IF_ERROR(problems.to_status());
  for (const StageSpec& stage : pipeline.stages) {
    if (stage.kind == (config.purpose == COLIBRI_PURPOSE_TEXT ? "block_in" : "read")) {
      return Status(ErrorCode::invalid_input, "the pipeline is for another purpose: it has a stage of kind " +
                                                  stage.kind + ", and config.purpose is " +
                                                  std::to_string(config.purpose) + "; expected " +
                                                  std::string(kPurposes) + ", whichever the pipeline is for");
    }
  }
  return pipeline;
}

Status add_allocator(const colibri_allocator& allocator, EngineOptions& options) {
  if (allocator.allocate == nullptr && allocator.release == nullptr) return {};
  if (allocator.allocate == nullptr || allocator.release == nullptr) {
    return {ErrorCode::invalid_input,
            "half of an allocator: one of config.allocator.allocate and config.allocator.release is NULL; "
            "set both "
            "or neither"};
  }
  options.memory.allocate = [allocator](std::size_t bytes, std::size_t alignment) {
    return allocator.allocate(allocator.user, bytes, alignment);
  };
  options.memory.release = [allocator](void* memory, std::size_t bytes, std::size_t alignment) {
    allocator.release(allocator.user, memory, bytes, alignment);
  };
  return {};
}

}  // namespace

Result<Configuration> read_configuration(const colibri_config* config, const std::string& model) {
  colibri_config defaults{};
  defaults.struct_size = sizeof defaults;
  if (config == nullptr) config = &defaults;
  COLIBRI_RETURN_IF_ERROR(check_struct(config, "config"));
  COLIBRI_RETURN_IF_ERROR(check_choice(config->purpose, COLIBRI_PURPOSE_BLOCKS, "config.purpose", kPurposes));
  Configuration read;
  read.purpose = config->purpose;
  COLIBRI_ASSIGN_OR_RETURN(read.pipeline, pipeline_of(*config, model));
  if (config->kernels != nullptr) {
    COLIBRI_ASSIGN_OR_RETURN(read.options.kernels, read_text(config->kernels, 64, "config.kernels"));
  }
  COLIBRI_RETURN_IF_ERROR(add_allocator(config->allocator, read.options));
  if (config->log != nullptr) {
    read.options.log = [log = config->log, user = config->log_user](const std::string& line) {
      const InCallback marked(InCallback::Kind::log);
      log(user, line.c_str());
    };
  }
  return read;
}

Result<std::string> read_path(const char* path, std::string_view name) {
  COLIBRI_ASSIGN_OR_RETURN(std::string text, read_text(path, kMaximumPathBytes, name));
  if (text.empty()) {
    return Status(ErrorCode::invalid_input,
                  "a path is empty: " + std::string(name) + "; name a file or folder");
  }
  return text;
}

}  // namespace colibri::c_api
