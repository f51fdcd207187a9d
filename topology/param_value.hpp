// A parameter's text as a value, checked against its ParamInfo; and what its ParamInfo expects.
//
// A spec keeps parameters as text, as they stand in the file; whoever uses one reads it here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "topology/stage_info.hpp"

namespace colibri {

struct ParamValue {
  bool is_auto = false;       // then the rest is unset
  bool boolean = false;       // ParamType::boolean
  std::uint64_t integer = 0;  // integer, bytes
  double number = 0;          // number
  std::string_view text;      // choice, text: a view of what was passed in
};

// The error is "what is wrong; expected ...; did you mean 'x'?", without a place.
Result<ParamValue> read_param(const ParamInfo& info, std::string_view text);

// "an integer from 1 to 64 lanes, or auto"
std::string expected_text(const ParamInfo& info);

std::vector<std::string_view> split_choices(std::string_view choices);

// A number of bytes in the largest unit that divides it: 4294967296 -> "4GiB". parse_bytes reads it back.
std::string exact_bytes_text(std::uint64_t bytes);
// A double in the fewest digits that read back equal: 0.5, 64, 1000000.
std::string number_text(double value);

}  // namespace colibri
