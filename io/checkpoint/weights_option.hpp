// What `--weights` may say, and the format that it means.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/status.hpp"
#include "kernels/number_format.hpp"

namespace colibri {

inline constexpr std::pair<std::string_view, kernels::WeightFormat> kWeightsOptions[] = {
    {"f32", kernels::WeightFormat::f32},
    {"bf16", kernels::WeightFormat::bf16},
    {"int8", kernels::WeightFormat::int8_g64},
    {"int4", kernels::WeightFormat::int4_g32},
};
inline constexpr std::string_view kWeightsAsStored = "auto";  // only `convert` knows what is stored

inline std::optional<kernels::WeightFormat> weights_option_format(std::string_view option) noexcept {
  for (const auto& [name, format] : kWeightsOptions) {
    if (name == option) return format;
  }
  return std::nullopt;
}

// The names, beginning with "auto" where that is a choice.
inline std::vector<std::string> weights_choices(bool as_stored) {
  std::vector<std::string> names;
  if (as_stored) names.emplace_back(kWeightsAsStored);
  for (const auto& option : kWeightsOptions) names.emplace_back(option.first);
  return names;
}

inline Status unknown_weights(const std::string& option, bool as_stored) {
  std::string allowed;
  for (const std::string& name : weights_choices(as_stored)) allowed += (allowed.empty() ? "" : ", ") + name;
  return {ErrorCode::invalid_input, "unknown weights: \"" + option + "\"; allowed are " + allowed};
}

}  // namespace colibri
