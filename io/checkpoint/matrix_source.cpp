// Reading, checking and packing blocks of rows.
#include "io/checkpoint/matrix_source.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <new>
#include <system_error>
#include <thread>

#include "io/read/backend_thread.hpp"
#include "kernels/packed_matrix.hpp"

namespace colibri {
namespace {

// f32 values read at a time for each thread, if a panel is no larger: many times what it takes to start one,
// and 64 MiB of them at most.
constexpr std::uint64_t kThreadElements = 256 * 1024;
constexpr std::uint64_t kLeastBlockElements = 1U << 20, kMostBlockElements = 1U << 24;

// Index of the first NaN or infinity, or values.size().
std::size_t first_not_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  std::uint32_t any = 0;  // a loop without exits, so that it is vectorised
  for (const float value : values) {
    any |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  }
  if (any == 0) return values.size();
  const auto found =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return static_cast<std::size_t>(found - values.begin());
}

// "[2, 17]": where a flat index lies in a tensor.
std::string position_text(const TensorInfo& tensor, std::uint64_t index) {
  std::vector<std::uint64_t> position(tensor.shape.size());
  for (std::size_t i = position.size(); i-- > 0;) {
    position[i] = index % tensor.shape[i];
    index /= tensor.shape[i];
  }
  return shape_to_string(position);
}

// Packs rows [count, columns] into panels that lie one after the other, on up to `threads` threads. Each
// panel is packed whole by one of them, so that their number changes nothing.
void pack_panels(kernels::WeightFormat format, const float* rows, std::uint32_t count, std::uint32_t columns,
                 std::uint64_t panel_bytes, std::byte* packed, std::uint32_t threads) {
  const std::uint32_t panels = (count + kernels::kPanelOutputs - 1) / kernels::kPanelOutputs;
  std::atomic<std::uint32_t> next{0};
  const auto work = [&] {
    for (std::uint32_t panel = next++; panel < panels; panel = next++) {
      const std::uint32_t row = panel * kernels::kPanelOutputs;
      kernels::pack_panel(format, rows + std::uint64_t{row} * columns,
                          std::min(kernels::kPanelOutputs, count - row), columns,
                          packed + panel * panel_bytes);
    }
  };
  const std::uint64_t worth = std::uint64_t{count} * columns / (kThreadElements / 2);
  const std::uint64_t wanted = std::min({std::uint64_t{threads}, std::uint64_t{panels}, worth});
  std::vector<std::thread> others;
  others.reserve(wanted);
  try {
    while (others.size() + 1 < wanted) others.push_back(start_backend_thread("convert", work));
  } catch (const std::system_error&) {
    // The system has no thread left: those that are there do it.
  } catch (const std::bad_alloc&) {
    // Nor memory for one.
  }
  work();
  for (std::thread& thread : others) thread.join();
}

}  // namespace

bool MatrixSource::all_bf16() const noexcept {
  return std::all_of(slices.begin(), slices.end(),
                     [](const SourceSlice& slice) { return slice.tensor.info->dtype == TensorDtype::bf16; });
}

Status read_rows(const MatrixSource& source, std::uint32_t first, std::uint32_t count,
                 std::span<float> values) {
  std::uint32_t slice_begin = 0;
  for (const SourceSlice& slice : source.slices) {
    const std::uint32_t begin = std::max(first, slice_begin);
    const std::uint32_t end = std::min(first + count, slice_begin + slice.rows);
    if (begin < end) {
      const std::uint64_t element = slice.first_element + std::uint64_t{begin - slice_begin} * source.columns;
      const auto part = values.subspan(std::uint64_t{begin - first} * source.columns,
                                       std::uint64_t{end - begin} * source.columns);
      const TensorInfo& tensor = *slice.tensor.info;
      COLIBRI_RETURN_IF_ERROR(slice.tensor.file->read_f32(tensor, element, part));
      if (const std::size_t bad = first_not_finite(part); bad < part.size()) {
        return {ErrorCode::invalid_input,
                "a weight is not a finite number: " + slice.tensor.file->path().string() + ": " +
                    tensor.name + position_text(tensor, element + bad) + " is " +
                    (std::isnan(part[bad]) ? "NaN" : "infinite") +
                    "; the checkpoint is damaged: download it again"};
      }
    }
    slice_begin += slice.rows;
  }
  return Status::ok();
}

Status pack_matrix(const MatrixSource& source, kernels::WeightFormat format, std::uint32_t threads,
                   UnitSink& sink, const std::function<bool()>& step) {
  const std::uint64_t panel_bytes = kernels::packed_shape(format, source.rows, source.columns).panel_bytes;
  const std::uint64_t elements =
      std::clamp(threads * kThreadElements, kLeastBlockElements, kMostBlockElements);
  const auto panels = static_cast<std::uint32_t>(
      std::max<std::uint64_t>(1, elements / (std::uint64_t{kernels::kPanelOutputs} * source.columns)));
  const std::uint32_t block_rows = std::min(panels * kernels::kPanelOutputs, source.rows);
  std::vector<float> values(std::uint64_t{block_rows} * source.columns);
  std::vector<std::byte> packed(kernels::packed_shape(format, block_rows, source.columns).bytes);
  for (std::uint32_t begin = 0; begin < source.rows; begin += block_rows) {
    const std::uint32_t count = std::min(block_rows, source.rows - begin);
    COLIBRI_RETURN_IF_ERROR(
        read_rows(source, begin, count, std::span(values).first(std::uint64_t{count} * source.columns)));
    pack_panels(format, values.data(), count, source.columns, panel_bytes, packed.data(), threads);
    COLIBRI_RETURN_IF_ERROR(
        sink.append(std::span(packed).first(kernels::packed_shape(format, count, source.columns).bytes)));
    if (!step()) return {ErrorCode::cancelled, "conversion was stopped; run it again to go on"};
  }
  return Status::ok();
}

Status copy_vector(const MatrixSource& source, UnitSink& sink) {
  std::vector<float> values(std::uint64_t{source.rows} * source.columns);
  COLIBRI_RETURN_IF_ERROR(read_rows(source, 0, source.rows, values));
  return sink.append(std::as_bytes(std::span(values)));
}

}  // namespace colibri
