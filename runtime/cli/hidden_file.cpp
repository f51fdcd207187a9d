// Checks of hidden states that come from a file, and their rows in both directions.
#include "runtime/cli/hidden_file.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace colibri::cli {
namespace {

constexpr std::string_view kInputPrefix = "moe_input.";
constexpr std::string_view kOutputPrefix = "moe_output.";

// "moe_input.12" -> 12, for digits as they are printed.
std::optional<std::uint32_t> layer_of(std::string_view name) {
  const std::string_view digits = name.substr(kInputPrefix.size());
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return std::to_string(layer) == digits ? std::optional(layer) : std::nullopt;
}

std::string moe_layers_text(const ModelSpec& spec) {
  std::string text;
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (spec.layers[layer].moe) text += (text.empty() ? "" : ", ") + std::to_string(layer);
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<HiddenFileSource>> HiddenFileSource::open(const std::string& path) {
  COLIBRI_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  std::unique_ptr<HiddenFileSource> source(new HiddenFileSource(std::move(file)));
  for (const TensorInfo& tensor : source->file_.tensors()) {
    if (!tensor.name.starts_with(kInputPrefix)) continue;
    const std::optional<std::uint32_t> layer = layer_of(tensor.name);
    if (!layer) {
      return Status(ErrorCode::invalid_input, "a tensor's name ends in no layer number: " + path + ": " +
                                                  tensor.name + "; expected moe_input.N");
    }
    source->inputs_.push_back({&tensor, *layer});
  }
  if (source->inputs_.empty()) {
    return Status(ErrorCode::not_found, "the input holds no hidden states: " + path +
                                            " has no tensor moe_input.N; name one for each MoE layer N to "
                                            "compute");
  }
  std::sort(source->inputs_.begin(), source->inputs_.end(),
            [](const Input& a, const Input& b) { return a.layer < b.layer; });
  return source;
}

Status HiddenFileSource::check(const ModelSpec& spec) const {
  for (const Input& input : inputs_) {
    const TensorInfo& tensor = *input.tensor;
    const std::string place = file_.path().string() + ": " + tensor.name;
    if (input.layer >= spec.num_layers() || !spec.layers[input.layer].moe) {
      return {ErrorCode::invalid_input, "hidden states for a layer without experts: " + place +
                                            "; the model has experts in layers " + moe_layers_text(spec)};
    }
    if (tensor.dtype == TensorDtype::other) {
      return {ErrorCode::unsupported, "hidden states of an unknown type: " + place + " has dtype " +
                                          tensor.dtype_name + "; expected F32, F16 or BF16"};
    }
    if (tensor.shape.size() != 2 || tensor.shape[1] != spec.hidden_size) {
      return {ErrorCode::invalid_input, "hidden states of a wrong shape: " + place + " is " +
                                            shape_to_string(tensor.shape) + "; expected [rows, " +
                                            std::to_string(spec.hidden_size) + "] for this model"};
    }
    if (tensor.shape[0] > std::numeric_limits<std::uint32_t>::max()) {
      return {ErrorCode::unsupported, "hidden states of too many rows: " + place + " has " +
                                          std::to_string(tensor.shape[0]) + "; cut them into several files"};
    }
  }
  return {};
}

Result<HiddenSource::Pull> HiddenFileSource::pull(HiddenRows& rows, std::span<float> residual) {
  while (next_input_ < inputs_.size()) {
    const Input& input = inputs_[next_input_];
    const std::uint64_t hidden = input.tensor->shape[1];
    const std::uint64_t left = input.tensor->shape[0] - next_row_;
    if (left == 0) {
      ++next_input_;
      next_row_ = 0;
      continue;
    }
    rows.name = input.tensor->name;
    rows.batch = next_input_;
    rows.layer = input.layer;
    rows.first_row = next_row_;
    rows.rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, residual.size() / hidden));
    COLIBRI_RETURN_IF_ERROR(
        file_.read_f32(*input.tensor, next_row_ * hidden, residual.first(rows.rows * hidden)));
    next_row_ += rows.rows;
    return Pull::rows;
  }
  return Pull::end;
}

std::vector<OutputTensor> HiddenFileSource::outputs() const {
  std::vector<OutputTensor> outputs;
  for (const Input& input : inputs_) {
    outputs.push_back({std::string(kOutputPrefix) + std::to_string(input.layer), input.tensor->shape});
  }
  return outputs;
}

std::uint64_t HiddenFileSource::rows() const noexcept {
  std::uint64_t rows = 0;
  for (const Input& input : inputs_) rows += input.tensor->shape[0];
  return rows;
}

Status HiddenFileSink::rows(const HiddenRows& rows, const HiddenResults& results) {
  const std::span<const float> output = results.output;
  const std::span<const Status> status = results.status;
  const std::size_t hidden = output.size() / rows.rows;
  // Runs of rows that have a result are written in one go; [begin, end) of this piece.
  for (std::uint32_t begin = 0; begin < rows.rows;) {
    std::uint32_t end = begin;
    while (end < rows.rows && status[end].is_ok()) ++end;
    const std::uint64_t first = (std::uint64_t{rows.first_row} + begin) * hidden;
    if (end > begin) {
      COLIBRI_RETURN_IF_ERROR(
          output_.write(rows.batch, first, output.subspan(begin * hidden, (end - begin) * hidden)));
    } else {
      row_.assign(hidden, std::numeric_limits<float>::quiet_NaN());
      COLIBRI_RETURN_IF_ERROR(output_.write(rows.batch, first, row_));
      if (failures_.size() < kMaxFailures) {
        failures_.push_back(
            Status(status[begin]).at(rows.name + ", row " + std::to_string(rows.first_row + begin)));
      }
      ++failed_;
      end = begin + 1;
    }
    begin = end;
  }
  written_.fetch_add(rows.rows, std::memory_order_relaxed);
  return {};
}

}  // namespace colibri::cli
