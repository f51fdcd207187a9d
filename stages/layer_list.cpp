// Parsing of layer lists. They come from a file: a range is checked before it is walked.
#include "stages/layer_list.hpp"

#include <charconv>
#include <string>

#include "topology/cpu_list.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

bool parse_layer(std::string_view text, std::uint32_t& layer) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

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
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = item.find('-');
    std::uint32_t first = 0, last = 0;
    if (!parse_layer(item.substr(0, dash), first)) return refuse("is not a list of layers");
    last = first;
    if (dash != std::string_view::npos && (!parse_layer(item.substr(dash + 1), last) || last < first))
      return refuse("is not a list of layers");
    if (last >= layers) return refuse("names a layer that the model lacks: it has " + std::to_string(layers));
    if (!choose(first, last)) return refuse("names layers without experts");
    if (comma == std::string_view::npos) return chosen;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace colibri
