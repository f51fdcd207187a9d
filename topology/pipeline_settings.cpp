// The table of settings, with how each is stored in a PipelineSpec.
//
// A new setting is one row here and its member in the spec: parsing, overrides by path and by
// variable, dump and schema follow from the row.
#include "topology/pipeline_settings.hpp"

#include "topology/param_value.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

using Text = std::pair<std::string, Origin>;

std::string optional_text(const std::optional<std::uint32_t>& value) {
  return value ? std::to_string(*value) : "auto";
}

// Optional counts: the integer is in the range of its row, hence fits 32 bits.
template <auto Value, auto From>
Status set_step_count(const SettingInfo& setting, std::string_view text, const Origin& origin,
                      PipelineSpec& spec) {
  COLIBRI_ASSIGN_OR_RETURN(const ParamValue value, read_param(setting.param, text));
  if (value.is_auto) {
    spec.steps.*Value = std::nullopt;
  } else {
    spec.steps.*Value = static_cast<std::uint32_t>(value.integer);
  }
  spec.steps.*From = origin;
  return {};
}

template <auto Value, auto From>
Text get_step_count(const PipelineSpec& spec) {
  return {optional_text(spec.steps.*Value), spec.steps.*From};
}

Status set_threads(const SettingInfo& setting, std::string_view text, const Origin& origin,
                   PipelineSpec& spec) {
  COLIBRI_ASSIGN_OR_RETURN(const ParamValue value, read_param(setting.param, text));
  spec.threads.reset();
  if (!value.is_auto) spec.threads = static_cast<std::uint32_t>(value.integer);
  spec.threads_origin = origin;
  return {};
}

Status set_model(const SettingInfo&, std::string_view text, const Origin& origin, PipelineSpec& spec) {
  spec.model = std::string(text);
  spec.model_origin = origin;
  return {};
}

Status set_virtual_placement(const SettingInfo& setting, std::string_view text, const Origin& origin,
                             PipelineSpec& spec) {
  COLIBRI_ASSIGN_OR_RETURN(const ParamValue value, read_param(setting.param, text));
  spec.virtual_placement = value.boolean;
  spec.virtual_placement_origin = origin;
  return {};
}

Status set_state_dir(const SettingInfo&, std::string_view text, const Origin& origin, PipelineSpec& spec) {
  spec.state_dir = std::string(text);
  spec.state_dir_origin = origin;
  return {};
}

Status refuse_share(const SettingInfo& setting, std::string_view text, std::string_view why) {
  return {ErrorCode::invalid_input,
          quote_value(text) + " " + std::string(why) + "; expected " + setting.expected()};
}

// bytes and auto as for any size; 25% and min where the row allows shares.
Result<SizeSetting> read_size(const SettingInfo& setting, std::string_view text) {
  SizeSetting size;
  if (setting.share && text == "min") {
    size.kind = SizeSetting::Kind::minimum;
    return size;
  }
  if (setting.share && text.ends_with('%')) {
    const ParamInfo percent{.name = {}, .type = ParamType::number};
    const Result<ParamValue> value = read_param(percent, text.substr(0, text.size() - 1));
    if (!value) return refuse_share(setting, text, "is not a size");
    if (value->number <= 0 || value->number > 100) return refuse_share(setting, text, "is out of range");
    size.kind = SizeSetting::Kind::percent;
    size.percent = value->number;
    return size;
  }
  const Result<ParamValue> value = read_param(setting.param, text);
  if (!value && !setting.share) return value.status();
  if (!value) {
    const bool too_large = value.status().code() == ErrorCode::capacity;
    return refuse_share(setting, text, too_large ? "is too large" : "is not a size");
  }
  if (value->is_auto) return size;
  size.kind = SizeSetting::Kind::bytes;
  size.bytes = value->integer;
  return size;
}

// Setters and getters are made from the member they belong to, so that a row names it once.
template <SizeSetting MemorySpec::*Value>
Status set_size(const SettingInfo& setting, std::string_view text, const Origin& origin, PipelineSpec& spec) {
  COLIBRI_ASSIGN_OR_RETURN(spec.memory.*Value, read_size(setting, text));
  (spec.memory.*Value).origin = origin;
  return {};
}

template <SizeSetting MemorySpec::*Value>
Text get_size(const PipelineSpec& spec) {
  const SizeSetting& size = spec.memory.*Value;
  switch (size.kind) {
    case SizeSetting::Kind::automatic: return {"auto", size.origin};
    case SizeSetting::Kind::bytes: return {exact_bytes_text(size.bytes), size.origin};
    case SizeSetting::Kind::percent: return {number_text(size.percent) + "%", size.origin};
    case SizeSetting::Kind::minimum: return {"min", size.origin};
  }
  return {"auto", size.origin};
}

// Rows that differ in name and help alone.
constexpr ParamInfo size_param(std::string_view name, std::string_view help) {
  return {.name = name,
          .type = ParamType::bytes,
          .unit = "bytes",
          .default_value = "auto",
          .allow_auto = true,
          .help = help};
}

constexpr ParamInfo count_param(std::string_view name, std::string_view unit, double maximum,
                                std::string_view help) {
  return {.name = name,
          .type = ParamType::integer,
          .unit = unit,
          .default_value = "auto",
          .minimum = 1,
          .maximum = maximum,
          .allow_auto = true,
          .help = help};
}

Status set_output(const SettingInfo&, std::string_view text, const Origin& origin, PipelineSpec& spec) {
  spec.profile = {std::string(text), origin};
  return {};
}

}  // namespace

std::string SettingInfo::path() const {
  return section.empty() ? std::string(param.name) : std::string(section) + "." + std::string(param.name);
}

std::string SettingInfo::expected() const {
  return share ? "a size such as 4GiB, a share such as 25%, min, or auto" : expected_text(param);
}

std::span<const SettingInfo> pipeline_settings() noexcept {
  static constexpr SettingInfo kSettings[] = {
      {.section = "",
       .param = {.name = "model",
                 .type = ParamType::text,
                 .unit = "folder",
                 .help =
                     "container that `colibri run` opens, relative to this file; empty: --model names it"},
       .set = set_model,
       .get =
           [](const PipelineSpec& spec) {
             return Text{spec.model, spec.model_origin};
           }},
      {.section = "",
       .param = count_param("threads", "threads", 4096,
                            "worker threads of the stages that are not placed on CPUs of their own; auto: "
                            "the CPUs that affinity and CPU quota allow"),
       .set = set_threads,
       .get =
           [](const PipelineSpec& spec) {
             return Text{optional_text(spec.threads), spec.threads_origin};
           }},
      {.section = "",
       .param = {.name = "virtual_placement",
                 .type = ParamType::boolean,
                 .unit = "",
                 .default_value = "false",
                 .help = "runs a pipeline made for another machine: its CPUs and NUMA nodes stand for those "
                         "here in turn, memory is not bound"},
       .set = set_virtual_placement,
       .get =
           [](const PipelineSpec& spec) {
             return Text{spec.virtual_placement ? "true" : "false", spec.virtual_placement_origin};
           }},
      {.section = "",
       .param = {.name = "state_dir",
                 .type = ParamType::text,
                 .unit = "folder",
                 .help =
                     "where jobs leave which experts they used, for later jobs with the same model; empty: "
                     "nowhere. The program takes $XDG_CACHE_HOME/colibri where nothing is said"},
       .set = set_state_dir,
       .get =
           [](const PipelineSpec& spec) {
             return Text{spec.state_dir, spec.state_dir_origin};
           }},
      {.section = "memory",
       .param = size_param("static", "pool of the dense weights and tables; auto: what the model needs"),
       .set = set_size<&MemorySpec::static_pool>,
       .get = get_size<&MemorySpec::static_pool>},
      {.section = "memory",
       .param = size_param("dynamic", "pool of the KV pages and hidden states; auto: what the steps need"),
       .set = set_size<&MemorySpec::dynamic>,
       .get = get_size<&MemorySpec::dynamic>},
      {.section = "memory",
       .param = size_param("scratch", "pool of the kernels' working memory; auto: what the steps need"),
       .set = set_size<&MemorySpec::scratch>,
       .get = get_size<&MemorySpec::scratch>},
      {.section = "memory",
       .param = size_param(
           "experts",
           "slots for experts: a size, a share of all experts, min (the fewest that can run), or "
           "auto: what is left of 80 % of the available memory, or of 90 % of what a cgroup's limit leaves"),
       .share = true,
       .set = set_size<&MemorySpec::experts>,
       .get = get_size<&MemorySpec::experts>},
      {.section = "steps",
       .param = count_param(
           "max_rows", "rows", 1 << 20,
           "rows of a step at most; auto: 512, or for a file of prompts to be scored or embedded as many "
           "as read least"),
       .set = set_step_count<&StepsSpec::max_rows, &StepsSpec::max_rows_origin>,
       .get = get_step_count<&StepsSpec::max_rows, &StepsSpec::max_rows_origin>},
      {.section = "steps",
       .param =
           count_param("wave_rows", "rows", 1 << 20, "rows of a wave: the unit that overlaps with reads"),
       .set = set_step_count<&StepsSpec::wave_rows, &StepsSpec::wave_rows_origin>,
       .get = get_step_count<&StepsSpec::wave_rows, &StepsSpec::wave_rows_origin>},
      {.section = "steps",
       .param = count_param("in_flight", "steps", 8,
                            "steps at a time; more than one goes through the weights more often, and pays "
                            "only for models that fit "
                            "into the caches of the processor; auto: 1"),
       .set = set_step_count<&StepsSpec::in_flight, &StepsSpec::in_flight_origin>,
       .get = get_step_count<&StepsSpec::in_flight, &StepsSpec::in_flight_origin>},
      {.section = "profile",
       .param = {.name = "output",
                 .type = ParamType::text,
                 .unit = "file name",
                 .help = "file for the profile of the run as JSON; empty: none"},
       .set = set_output,
       .get =
           [](const PipelineSpec& spec) {
             return Text{spec.profile.output, spec.profile.origin};
           }},
  };
  return kSettings;
}

std::span<const ParamInfo> edge_params() noexcept {
  static constexpr ParamInfo kParams[] = {
      {.name = "from", .type = ParamType::text, .unit = "stage.port", .help = "output port that sends"},
      {.name = "to", .type = ParamType::text, .unit = "stage.port", .help = "input port that receives"},
      {.name = "capacity",
       .type = ParamType::integer,
       .unit = "messages",
       .default_value = "auto",
       .minimum = 1,
       .maximum = kMaximumEdgeCapacity,
       .allow_auto = true,
       .help = "messages that the edge holds; auto: as many as can circulate"},
  };
  return kParams;
}

std::span<const std::string_view> top_level_keys() noexcept {
  static constexpr std::string_view kKeys[] = {"version",   "model",  "threads", "virtual_placement",
                                               "state_dir", "memory", "steps",   "stages",
                                               "edges",     "profile"};
  return kKeys;
}

}  // namespace colibri
