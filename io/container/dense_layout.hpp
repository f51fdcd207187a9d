// The dense tensors that a model of a given spec has: names and shapes, in file order.
//
// One list for both sides: the converter fills it, opening a container compares with it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/container/container.hpp"

namespace colibri {

// What a dense tensor is for; it decides which formats are allowed.
enum class DenseRole : std::uint8_t {
  vector,     // norms, biases, the shared expert's gate: plain f32
  router,     // packed f32
  embedding,  // packed, in the stored precision
  matrix,     // packed, in any format
};

struct DenseSlot {
  std::string name;
  DenseRole role = DenseRole::vector;
  std::uint32_t rows = 1;     // outputs
  std::uint32_t columns = 0;  // inputs
};

// `spec` must be valid.
std::vector<DenseSlot> dense_slots(const ModelSpec& spec);

// Compares the tensors of a file with what `spec` demands; the sentence names the first difference.
Status check_dense_tensors(const ModelSpec& spec, std::span<const DenseTensor> tensors,
                           const std::filesystem::path& file);

}  // namespace colibri
