// A SAX handler for safetensors headers, and the checks on what it found.
#include "io/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

namespace colibri {
namespace {

constexpr std::size_t kMaxDimensions = 8;

struct DtypeRow {
  std::string_view name;
  std::uint32_t bits;
  TensorDtype dtype;
};
constexpr DtypeRow kDtypes[] = {
    {"F32", 32, TensorDtype::f32},      {"F16", 16, TensorDtype::f16},
    {"BF16", 16, TensorDtype::bf16},    {"F64", 64, TensorDtype::other},
    {"I64", 64, TensorDtype::other},    {"I32", 32, TensorDtype::other},
    {"I16", 16, TensorDtype::other},    {"I8", 8, TensorDtype::other},
    {"U64", 64, TensorDtype::other},    {"U32", 32, TensorDtype::other},
    {"U16", 16, TensorDtype::other},    {"U8", 8, TensorDtype::other},
    {"BOOL", 8, TensorDtype::other},    {"C64", 64, TensorDtype::other},
    {"F8_E4M3", 8, TensorDtype::other}, {"F8_E5M2", 8, TensorDtype::other},
    {"F8_E8M0", 8, TensorDtype::other}, {"F6_E2M3", 6, TensorDtype::other},
    {"F6_E3M2", 6, TensorDtype::other}, {"F4", 4, TensorDtype::other},
};

const DtypeRow* find_dtype(std::string_view name) {
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [name](const DtypeRow& row) { return row.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

// Depth 1 holds names, depth 2 the three fields of a tensor (or metadata strings), depth 3 numbers.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorInfo> tensors;
  std::string error;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a fraction or a huge number");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) return unexpected("a number");
    if (list_.size() == kMaxDimensions)
      return fail("has more than " + std::to_string(kMaxDimensions) + " dimensions");
    list_.push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || field_ != "dtype") return unexpected("a string");
    tensor_.dtype_name = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || in_list_) return unexpected("an object");
    if (++depth_ == 2) fields_ = {};
    return true;
  }
  bool end_object() override {
    if (--depth_ != 1) return true;
    if (in_metadata_) return true;
    if (fields_ != std::array{true, true, true}) return fail("lacks one of dtype, shape, data_offsets");
    tensors.push_back(std::move(tensor_));
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_list_ || field_ == "dtype") return unexpected("a list");
    in_list_ = true;
    list_.clear();
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    if (field_ == "shape") {
      tensor_.shape = list_;
      return true;
    }
    if (list_.size() != 2 || list_[0] > list_[1]) return fail("has data_offsets that are no range");
    tensor_.offset = list_[0];
    tensor_.bytes = list_[1] - list_[0];
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) {
      if (!names_.insert(value).second) return fail_at(value, "occurs twice");
      in_metadata_ = value == "__metadata__";
      tensor_ = {};
      tensor_.name = value;
      return true;
    }
    if (in_metadata_) return true;
    constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    const auto found = std::find(kFields.begin(), kFields.end(), value);
    if (found == kFields.end()) return fail("has the unknown key \"" + value + "\"");
    bool& seen = fields_[static_cast<std::size_t>(found - kFields.begin())];
    if (seen) return fail("has the key \"" + value + "\" twice");
    seen = true;
    field_ = value;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    if (error.empty()) error = "byte " + std::to_string(position) + ": " + reason.what();
    return false;
  }

 private:
  bool fail_at(const std::string& name, const std::string& what) {
    if (error.empty()) error = "tensor \"" + name + "\" " + what;
    return false;
  }
  bool fail(const std::string& what) { return fail_at(tensor_.name, what); }
  bool unexpected(const std::string& what) {
    return depth_ == 0 ? fail_at("", "expected, found " + what)
                       : fail("has " + what + " at \"" + field_ + "\"");
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_list_ = false;
  std::string field_;
  std::array<bool, 3> fields_{};  // dtype, shape, data_offsets seen
  TensorInfo tensor_;
  std::vector<std::uint64_t> list_;
  std::unordered_set<std::string> names_;
};

// Fills dtype, elements; the sentence says what does not fit.
std::optional<std::string> complete_tensor(TensorInfo& tensor, std::uint64_t data_bytes) {
  const DtypeRow* dtype = find_dtype(tensor.dtype_name);
  if (dtype == nullptr) return "has the unknown dtype \"" + tensor.dtype_name + "\"";
  tensor.dtype = dtype->dtype;
  std::optional<std::uint64_t> elements = 1;
  for (const std::uint64_t size : tensor.shape) elements = elements ? checked_mul(*elements, size) : elements;
  const auto bits = elements ? checked_mul<std::uint64_t>(*elements, dtype->bits) : std::nullopt;
  if (!bits) return "has a shape whose size overflows: " + shape_to_string(tensor.shape);
  tensor.elements = *elements;
  if (const std::uint64_t expected = (*bits + 7) / 8; expected != tensor.bytes) {
    return "of shape " + shape_to_string(tensor.shape) + " and dtype " + tensor.dtype_name + ", expected " +
           std::to_string(expected) + " bytes, found " + std::to_string(tensor.bytes);
  }
  const auto end = checked_add(tensor.offset, tensor.bytes);
  if (!end || *end > data_bytes) {
    return "ends at " + std::to_string(end.value_or(tensor.offset)) + ", outside the " +
           std::to_string(data_bytes) + " bytes of data; the file is truncated or damaged";
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header, std::uint64_t data_offset,
                                                         std::uint64_t data_bytes, const std::string& file) {
  const auto damaged = [&](const std::string& what) {
    return Status(ErrorCode::corrupt, "damaged safetensors header: " + file + ": " + what)
        .in_file(file, data_offset - header.size());
  };
  if (header.empty() || header.front() != '{') return damaged("expected it to start with {");
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(header, &handler)) return damaged(handler.error);
  std::vector<TensorInfo> tensors = std::move(handler.tensors);
  for (TensorInfo& tensor : tensors) {
    if (const auto wrong = complete_tensor(tensor, data_bytes)) {
      return damaged("tensor \"" + tensor.name + "\" " + *wrong);
    }
  }
  // Empty tensors sort before the tensor that starts at the same place.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::uint64_t end = 0;
  for (TensorInfo& tensor : tensors) {
    if (tensor.offset != end) {
      return damaged("tensor \"" + tensor.name + "\" " +
                     (tensor.offset < end ? "overlaps" : "leaves a gap after") +
                     " the one before it, expected its data at " + std::to_string(end) + ", found " +
                     std::to_string(tensor.offset));
    }
    end += tensor.bytes;
    tensor.offset += data_offset;
  }
  if (end != data_bytes) {
    return damaged("expected " + std::to_string(end) + " bytes of data, found " + std::to_string(data_bytes));
  }
  return tensors;
}

}  // namespace colibri
