// Flags to overrides, in the order in which they were typed.
#include "runtime/cli/pipeline_flags.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string_view>

#include "io/container/file_handle.hpp"

namespace colibri::cli {
namespace {

struct ShortForm {
  const char* flag;
  const char* path;
  const char* help;
};

constexpr ShortForm kShortForms[] = {
    {"--threads", "threads", "Worker threads, or auto"},
    {"--experts-memory", "memory.experts",
     "Memory for experts: bytes (4GiB), a share of all experts (25%), min or auto"},
    {"--max-rows", "steps.max_rows", "Rows of a step, or auto"},
    {"--state-dir", "state_dir",
     "Folder for what jobs learn about models; $XDG_CACHE_HOME/colibri when left out, \"\" for nowhere"},
    {"--wave-rows", "steps.wave_rows", "Rows of a wave, or auto"},
};

Override from_command_line(std::string path, std::string value, std::string flag) {
  return {std::move(path), std::move(value), {.kind = Origin::Kind::command_line, .file = std::move(flag)}};
}

// Splits PATH=VALUE at the first '='.
void add_setting(const std::string& text, PipelineFlags& flags) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw CLI::ValidationError("--set", "expected PATH=VALUE, as in stages.fetch.lanes=16: " + text);
  }
  flags.overrides.push_back(from_command_line(text.substr(0, equals), text.substr(equals + 1), "--set"));
}

// A setting given twice is a slip of which either value could be meant.
void check_given_once(const std::vector<Override>& typed, PipelineProblems& problems) {
  std::map<std::string_view, std::string_view> flags;  // path -> the flag that set it first
  for (const Override& setting : typed) {
    const auto [first, once] = flags.try_emplace(setting.path, setting.origin.file);
    if (once) continue;
    const bool same_flag = first->second == setting.origin.file;
    problems.add(setting.origin, setting.path,
                 "set twice" + (same_flag ? "" : ", also by " + std::string(first->second)) +
                     "; expected each setting once");
  }
}

}  // namespace

// Each value is taken as it is parsed: the order among all flags is that of the command line.
void add_setting_flag(CLI::App& verb, PipelineFlags& flags, const std::string& flag, const std::string& path,
                      const std::string& help) {
  verb.add_option_function<std::string>(
          flag,
          [&flags, flag, path](const std::string& value) {
            flags.overrides.push_back(from_command_line(path, value, flag));
          },
          help)
      ->trigger_on_parse();
}

void add_pipeline_setting_flags(CLI::App& verb, PipelineFlags& flags) {
  for (const ShortForm& form : kShortForms) add_setting_flag(verb, flags, form.flag, form.path, form.help);
  verb.add_flag_callback(
          "--virtual-placement",
          [&flags] {
            flags.overrides.push_back(from_command_line("virtual_placement", "true", "--virtual-placement"));
          },
          "Run a pipeline made for another machine: its CPUs stand for those here, memory is not bound")
      ->trigger_on_parse();
  verb.add_option_function<std::vector<std::string>>(
          "--set",
          [&flags](const std::vector<std::string>& settings) {
            for (const std::string& setting : settings) add_setting(setting, flags);
          },
          "PATH=VALUE: any value of the pipeline, as in stages.fetch.lanes=16; may be repeated")
      ->allow_extra_args(false)
      ->trigger_on_parse();
}

void add_pipeline_flags(CLI::App& verb, PipelineFlags& flags) {
  verb.add_option("--pipeline", flags.file, "Pipeline file; the built-in one when left out");
  add_pipeline_setting_flags(verb, flags);
}

Result<LoadedPipeline> load_pipeline(const PipelineFlags& flags, StageInfos kinds) {
  std::string yaml(default_pipeline_yaml());
  std::string name = "built-in";
  if (!flags.file.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(yaml, read_text_file(flags.file, kMaximumPipelineBytes));
    name = flags.file;
  }
  std::vector<Override> overrides = overrides_from_environment(environ);
  overrides.insert(overrides.end(), flags.overrides.begin(), flags.overrides.end());
  LoadedPipeline loaded;
  check_given_once(flags.overrides, loaded.problems);
  loaded.spec = parse_pipeline(yaml, name, kinds, overrides, loaded.problems);
  check_pipeline(loaded.spec, kinds, loaded.problems);
  return loaded;
}

}  // namespace colibri::cli
