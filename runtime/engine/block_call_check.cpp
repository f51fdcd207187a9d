#include "runtime/engine/block_call_check.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace colibri {
namespace {

// An array of a call as the host gave it: all are of values of 4 bytes.
struct Array {
  const char* name;
  const void* data;
  std::uint64_t values;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;  // past the last byte
};

Status refused(std::string message) { return {ErrorCode::invalid_input, std::move(message)}; }

Status place(Array& array) {
  constexpr std::uintptr_t kValueBytes = 4;
  array.begin = reinterpret_cast<std::uintptr_t>(array.data);
  if (array.begin % kValueBytes != 0) {
    return refused("an array of the call is not aligned to its values: " + std::string(array.name) +
                   "; give a pointer that is a multiple of 4");
  }
  const auto bytes = checked_mul<std::uintptr_t>(array.values, kValueBytes);
  const auto end = bytes ? checked_add(array.begin, *bytes) : bytes;
  if (!end) {
    return refused("an array of the call ends outside of the address space: " + std::string(array.name) +
                   ", " + std::to_string(array.values) + " values; correct its pointer");
  }
  array.end = *end;
  return {};
}

Status missing(const Array& array) {
  return refused("an array of the call is missing: " + std::string(array.name) + " is null; give memory of " +
                 std::to_string(array.values) + " values");
}

bool overlap(const Array& a, const Array& b) { return a.begin < b.end && b.begin < a.end; }

// [rows, hidden] values of the input
Status check_finite(const BlockCall& call, std::size_t hidden) {
  for (std::size_t row = 0; row < call.rows; ++row) {
    const float* values = call.input + row * hidden;
    // Without a branch for each value: nearly always all of them are finite.
    constexpr std::uint32_t kExponent = 0x7f800000;
    bool finite = true;
    for (std::size_t column = 0; column < hidden; ++column)
      finite &= (std::bit_cast<std::uint32_t>(values[column]) & kExponent) != kExponent;
    if (finite) continue;
    std::size_t column = 0;
    while (std::isfinite(values[column])) ++column;
    return refused("the input of the call holds a value that is not finite: row " + std::to_string(row) +
                   ", column " + std::to_string(column) + "; correct it");
  }
  return {};
}

}  // namespace

Status check_block_shape(const BlockCall& call, const ModelSpec& spec) {
  if (call.layer >= spec.num_layers() || !spec.layers[call.layer].moe) {
    std::string layers;
    for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers();
         layer = spec.next_moe_layer(layer + 1))
      layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
    return refused("the call is for a layer without experts: layer " + std::to_string(call.layer) +
                   "; the model has experts in layers " + layers);
  }
  if (call.rows == 0 || call.rows > spec.max_seq_len) {
    return refused("the call has a number of rows that the model does not take: " +
                   std::to_string(call.rows) + "; give 1 to " + std::to_string(spec.max_seq_len));
  }
  return {};
}

Status check_block_input(const BlockCall& call, const ModelSpec& spec) {
  COLIBRI_RETURN_IF_ERROR(check_block_shape(call, spec));
  Array input = {"input", call.input, std::uint64_t{call.rows} * spec.hidden_size};
  if (input.data == nullptr) return missing(input);
  COLIBRI_RETURN_IF_ERROR(place(input));
  return check_finite(call, spec.hidden_size);
}

Status check_block_call(const BlockCall& call, const ModelSpec& spec) {
  COLIBRI_RETURN_IF_ERROR(check_block_shape(call, spec));
  const std::uint64_t rows = call.rows;
  Array arrays[] = {{"input", call.input, rows * spec.hidden_size},
                    {"output", call.output, rows * spec.hidden_size},
                    {"experts", call.experts, rows * spec.num_experts_per_token},
                    {"weights", call.weights, rows * spec.num_experts_per_token}};
  const Array &input = arrays[0], &output = arrays[1];
  for (Array& array : arrays) {
    if (array.data != nullptr) {
      COLIBRI_RETURN_IF_ERROR(place(array));
    } else if (&array == &input || &array == &output) {
      return missing(array);
    }
  }
  for (const Array& a : arrays) {
    for (const Array* b = &a + 1; b != std::end(arrays); ++b) {
      if (a.data == nullptr || b->data == nullptr || !overlap(a, *b)) continue;
      if (&a == &input && b == &output && a.begin == b->begin)
        continue;  // each row is read before it is written
      return refused("arrays of the call overlap: " + std::string(a.name) + " and " + b->name +
                     "; give each its own memory (the output may be the input's, from its first value on)");
    }
  }
  return check_finite(call, spec.hidden_size);
}

}  // namespace colibri
