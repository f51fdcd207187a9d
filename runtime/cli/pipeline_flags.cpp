// Flags to overrides, in the order in which they were typed.
#include "runtime/cli/pipeline_flags.hpp"

#include <unistd.h>

#include <map>
#include <string_view>

#include "io/container/file_handle.hpp"
#include "runtime/cli/verb_flags.hpp"

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

std::string check_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals != 0 && equals != std::string::npos) return {};
  return "expected PATH=VALUE, as in stages.fetch.lanes=16: " + text;
}

// Splits PATH=VALUE at the first '='.
Override setting_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  return from_command_line(text.substr(0, equals), text.substr(equals + 1), "--set");
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

// The order among all these flags is that of the command line, so that a path set twice shows by both.
void add_setting_flag(Verb& verb, PipelineFlags& flags, const std::string& flag, const std::string& path,
                      const std::string& help) {
  const auto take = [&flags, flag, path](const std::string& value) {
    flags.overrides.push_back(from_command_line(path, value, flag));
  };
  verb.on_option(flag, take, help).as_parsed();
}

void add_pipeline_setting_flags(Verb& verb, PipelineFlags& flags) {
  for (const ShortForm& form : kShortForms) add_setting_flag(verb, flags, form.flag, form.path, form.help);
  const auto take_virtual = [&flags] {
    flags.overrides.push_back(from_command_line("virtual_placement", "true", "--virtual-placement"));
  };
  verb.on_flag("--virtual-placement", take_virtual,
               "Run a pipeline made for another machine: its CPUs stand for those here, memory is not bound")
      .as_parsed();
  verb.on_list(
          "--set", [&flags](const std::string& text) { flags.overrides.push_back(setting_of(text)); },
          "PATH=VALUE: any value of the pipeline, as in stages.fetch.lanes=16; may be repeated")
      .check(check_setting)
      .one_value_each()
      .as_parsed();
}

void add_pipeline_flags(Verb& verb, PipelineFlags& flags) {
  verb.option("--pipeline", flags.file, "Pipeline file; the built-in one when left out");
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
