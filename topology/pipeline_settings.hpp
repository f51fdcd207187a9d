// The settings outside stages and edges, as a table: one row gives the parser, the
// overrides, the dump and the JSON Schema all that they need.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "topology/pipeline_spec.hpp"

namespace colibri {

struct SettingInfo {
  std::string_view section;  // "memory"; empty: a top-level key
  ParamInfo param;
  bool share = false;  // a size that may also be "25%" or min
  // Reads the text into the spec; the error is as of read_param.
  Status (*set)(const SettingInfo& setting, std::string_view text, const Origin& origin, PipelineSpec& spec);
  // The effective value as text that `set` reads back, and its origin.
  std::pair<std::string, Origin> (*get)(const PipelineSpec& spec);

  std::string path() const;      // "memory.experts"
  std::string expected() const;  // expected_text, with shares
};

std::span<const SettingInfo> pipeline_settings() noexcept;

// The keys of an edge: from, to, capacity.
std::span<const ParamInfo> edge_params() noexcept;

// "a whole file's top-level keys", in the order in which they are documented.
std::span<const std::string_view> top_level_keys() noexcept;
inline constexpr std::uint64_t kPipelineVersion = 1;

}  // namespace colibri
