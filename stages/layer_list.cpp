// Parsing of layer lists. They come from a file: a range is checked before it is walked.
#include "stages/layer_list.hpp"

#include <string>

#include "topology/cpu_list.hpp"
#include "topology/number_ranges.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
Result<std::vector<bool>> parse_layer_list(std::string_view text, const ModelSpec& spec) {
  const std::uint32_t layers = spec.num_layers();
  std::vector<std::uint32_t> moe;
  for (std::uint32_t layer = spec.next_moe_layer(0); layer < layers; layer = spec.next_moe_layer(layer + 1))
    moe.push_back(layer);
  std::vector<bool> chosen(layers, false);
  const auto choose = [&](std::uint32_t first, std::uint32_t last) {
    bool any = false;
    for (const std::uint32_t layer : moe) {
      if (layer < first || layer > last) continue;
      chosen[layer] = any = true;
    }
    return any;
  };
  const auto refuse = [&](std::string_view why) {
    return Status(ErrorCode::invalid_input, quote_value(text) + " " + std::string(why) +
                                                "; expected all, or a list such as 0-3,8 of the layers with "
                                                "experts: " +
                                                format_cpu_list(moe));
  };
  if (text == "all") {
    choose(0, layers);
    return chosen;
  }
  NumberRanges ranges(text);
  for (NumberRange range;;) {
    const NumberRanges::Next next = ranges.next(range);
    if (next == NumberRanges::Next::end) return chosen;
    if (next == NumberRanges::Next::wrong) return refuse("is not a list of layers");
    if (range.last >= layers)
      return refuse("names a layer that the model lacks: it has " + std::to_string(layers));
    if (!choose(range.first, range.last)) return refuse("names layers without experts");
  }
}

void check_layer_lists(const PipelineSpec& pipeline, StageInfos kinds, const ModelSpec& spec,
                       PipelineProblems& problems) {
  for (const StageSpec& stage : pipeline.stages) {
    const StageInfo* info = find_kind(kinds, stage.kind);
    if (info == nullptr) continue;
    for (const ParamInfo& param : info->params) {
      const auto given = stage.params.find(std::string(param.name));
      if (param.unit != kLayerListUnit || given == stage.params.end()) continue;
      if (const auto layers = parse_layer_list(given->second.first, spec); !layers) {
        problems.add(given->second.second, "stages." + stage.name + "." + std::string(param.name),
                     layers.status().message());
      }
    }
  }
}

}  // namespace colibri
