// MatrixSource: one matrix of a container as it lies in a checkpoint: slices of stored tensors,
// stacked along the rows. A matrix is packed and handed on block by block.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "io/checkpoint/checkpoint_folder.hpp"
#include "io/container/binary_writer.hpp"
#include "io/container/container.hpp"
#include "io/status.hpp"

namespace colibri {

// Rows of a stored tensor, `columns` elements each (of the matrix), from `first_element` on.
struct SourceSlice {
  StoredTensor tensor;
  std::uint64_t first_element = 0;
  std::uint32_t rows = 0;
};

struct MatrixSource {
  std::vector<SourceSlice> slices;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;

  // Every slice is stored as BF16.
  bool all_bf16() const noexcept;
};

// Reads rows as f32 [count, columns]. A NaN or infinite value is an error with tensor and index.
Status read_rows(const MatrixSource& source, std::uint32_t first, std::uint32_t count,
                 std::span<float> values);

// Hands the matrix to `sink` in panels of `format`, packed on up to `threads` threads. `step` is called after
// each block; when it returns false, the work stops with ErrorCode::cancelled.
Status pack_matrix(const MatrixSource& source, kernels::WeightFormat format, std::uint32_t threads,
                   UnitSink& sink, const std::function<bool()>& step);
// Hands the values to `sink` as plain f32.
Status copy_vector(const MatrixSource& source, UnitSink& sink);

}  // namespace colibri
