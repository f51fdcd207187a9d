#include "runtime/memory/usage_file.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <system_error>

#include "io/container/checksum.hpp"
#include "io/container/file_handle.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "the file's numbers are the processor's");
constexpr std::string_view kMagic = "CLBUSAGE";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 24;

template <class Value>
void append(std::string& bytes, Value value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Value>
Value value_at(std::string_view bytes, std::size_t offset) {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string header_of(std::uint32_t layers, std::uint32_t experts) {
  std::string bytes(kMagic);
  for (const std::uint32_t value : {kVersion, layers, experts, 0U}) append(bytes, value);
  return bytes;
}

std::vector<float> floats_at(std::string_view bytes, std::size_t offset, std::size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data() + offset, count * sizeof(float));
  return values;
}

std::uint64_t checksum_of(std::string_view bytes) { return xxh3_64(std::as_bytes(std::span(bytes))); }

}  // namespace

UsageFile::UsageFile(const fs::path& state_dir, const std::string& digest, std::uint32_t layers,
                     std::uint32_t experts)
    : path_(state_dir / ("usage-" + digest + ".bin")), layers_(layers), experts_(experts) {}

Result<UsageSnapshot> UsageFile::read() const {
  std::error_code error;
  if (!fs::exists(path_, error)) return UsageSnapshot{};
  auto wrong = [this](const std::string& what) {
    return Status(ErrorCode::corrupt,
                  "the file of used experts " + what + ": " + path_.string() +
                      "; nothing is known of earlier jobs, the end of this one writes it anew");
  };
  if (!fs::is_regular_file(path_, error)) return wrong("is no file");
  const std::size_t records = std::size_t{layers_} * experts_;
  const std::size_t body = kHeaderBytes + (layers_ + records) * sizeof(float);
  auto text = read_text_file(path_, body + sizeof(std::uint64_t));
  if (!text) return wrong("cannot be read (" + text.status().to_string() + ")");
  const std::string_view bytes = *text;
  if (bytes.size() != body + sizeof(std::uint64_t) || !bytes.starts_with(header_of(layers_, experts_))) {
    return wrong("is of another version or model");
  }
  if (value_at<std::uint64_t>(bytes, body) != checksum_of(bytes.substr(0, body))) {
    return wrong("has a wrong checksum");
  }
  UsageSnapshot snapshot{.visits = floats_at(bytes, kHeaderBytes, layers_),
                         .uses = floats_at(bytes, kHeaderBytes + layers_ * sizeof(float), records)};
  for (std::size_t record = 0; record < records; ++record) {
    const float visits = snapshot.visits[record / experts_], uses = snapshot.uses[record];
    if (!(std::isfinite(visits) && uses >= 0 && uses <= visits)) return wrong("holds impossible counts");
  }
  return snapshot;
}

Status UsageFile::write(const UsageSnapshot& snapshot) const {
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  if (error) {
    return {ErrorCode::io, "cannot make the state folder: " + path_.parent_path().string() + ": " +
                               error.message() + "; name another with --state-dir"};
  }
  std::string bytes = header_of(layers_, experts_);
  for (const float value : snapshot.visits) append(bytes, value);
  for (const float value : snapshot.uses) append(bytes, value);
  append(bytes, checksum_of(bytes));
  return write_text_file(path_, bytes);
}

}  // namespace colibri
