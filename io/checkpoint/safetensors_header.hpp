// The JSON header of a safetensors file, parsed as a stream: a header may have 100 MB, and a
// document tree of it would take ten times that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/safetensors.hpp"
#include "io/status.hpp"

namespace colibri {

// Tensors sorted by offset; offsets count from `data_offset`, and data_bytes follow it in the file.
// Checks types, duplicates, sizes, gaps and overlaps. `file` names the file in errors.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header, std::uint64_t data_offset,
                                                         std::uint64_t data_bytes, const std::string& file);

}  // namespace colibri
