#include "runtime/engine/live_parameters.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "topology/problem_text.hpp"

namespace colibri {
namespace {

// A word that no value has: integers end below it, and as a double it is no number.
constexpr std::uint64_t kAutoWord = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view kPrefix = "stages.";

std::uint64_t word_of(const ParamInfo& info, const std::vector<std::string_view>& choices,
                      const ParamValue& value) {
  if (value.is_auto) return kAutoWord;
  switch (info.type) {
    case ParamType::boolean: return value.boolean ? 1 : 0;
    case ParamType::integer:
    case ParamType::bytes: return value.integer;
    case ParamType::number: return std::bit_cast<std::uint64_t>(value.number);
    case ParamType::choice:
      return static_cast<std::uint64_t>(std::find(choices.begin(), choices.end(), value.text) -
                                        choices.begin());
    case ParamType::text: break;  // has no word: such a parameter is never live
  }
  return kAutoWord;
}

}  // namespace

LiveParameters::Cell::Cell(const ParamInfo& info, std::string_view text)
    : info_(&info), choices_(split_choices(info.choices)) {
  static_cast<void>(set(text));
}

Status LiveParameters::Cell::set(std::string_view text) {
  COLIBRI_ASSIGN_OR_RETURN(const ParamValue value, read_param(*info_, text));
  word_.store(word_of(*info_, choices_, value), std::memory_order_relaxed);
  return {};
}

ParamValue LiveParameters::Cell::get() const noexcept {
  const std::uint64_t word = word_.load(std::memory_order_relaxed);
  ParamValue value;
  if (info_->allow_auto && word == kAutoWord) {
    value.is_auto = true;
    value.text = "auto";
    return value;
  }
  value.boolean = word == 1;
  value.integer = word;
  if (info_->type == ParamType::number) value.number = std::bit_cast<double>(word);
  if (info_->type == ParamType::choice) value.text = choices_[word];
  return value;
}

LiveParameters::LiveParameters(const PipelineSpec& spec, StageInfos kinds) {
  for (const StageSpec& stage : spec.stages) {
    const StageInfo* info = find_kind(kinds, stage.kind);
    if (info == nullptr) continue;  // building the pipeline says so
    Stage& live = stages_.emplace_back();
    live.name = stage.name;
    live.info = info;
    for (const ParamInfo& param : info->params) {
      if (param.while_running && param.type != ParamType::text)
        live.cells.emplace_back(param, effective_param(stage, *info, param.name));
    }
  }
}

const LiveParameters::Cell* LiveParameters::find(std::string_view stage,
                                                 std::string_view param) const noexcept {
  for (const Stage& live : stages_) {
    if (live.name != stage) continue;
    for (const Cell& cell : live.cells) {
      if (cell.info().name == param) return &cell;
    }
  }
  return nullptr;
}

Status LiveParameters::set(std::string_view path, std::string_view value) {
  const std::size_t dot = path.rfind('.');
  if (!path.starts_with(kPrefix) || dot < kPrefix.size()) {
    return {ErrorCode::invalid_input,
            "only parameters of stages may change while an engine is open: " + quote_value(path) +
                "; expected stages.STAGE.PARAMETER; set others in the pipeline, "
                "before Engine::open"};
  }
  const std::string_view name = path.substr(kPrefix.size(), dot - kPrefix.size());
  for (Stage& stage : stages_) {
    if (stage.name == name) return set_in_stage(stage, path, path.substr(dot + 1), value);
  }
  std::vector<std::string_view> names;
  for (const Stage& stage : stages_) names.push_back(stage.name);
  return {ErrorCode::not_found, "the pipeline has no such stage: " + quote_value(name) +
                                    "; expected one of " + join_names(names) + suggest_name(name, names)};
}

Status LiveParameters::set_in_stage(Stage& stage, std::string_view path, std::string_view param,
                                    std::string_view value) {
  std::vector<std::string_view> live;
  for (Cell& cell : stage.cells) {
    if (cell.info().name != param) {
      live.push_back(cell.info().name);
      continue;
    }
    Status status = cell.set(value);
    return status ? status : Status(status.code(), std::string(path) + ": " + std::string(status.message()));
  }
  const std::string may = live.empty() ? "none of this stage's may" : "of this stage may " + join_names(live);
  const bool declared = colibri::find_param(stage.info->params, param) != nullptr ||
                        colibri::find_param(common_stage_params(), param) != nullptr ||
                        colibri::find_param(partition_params(*stage.info), param) != nullptr;
  if (declared) {
    return {ErrorCode::invalid_input,
            "the parameter cannot change while an engine is open: " + std::string(path) + "; " + may +
                "; set it in the pipeline, before Engine::open"};
  }
  std::vector<std::string_view> names;
  for (const ParamInfo& known : stage.info->params) names.push_back(known.name);
  return {ErrorCode::not_found, "the stage has no such parameter: " + quote_value(path) +
                                    "; while an engine is open, " + may + suggest_name(param, names)};
}

}  // namespace colibri
