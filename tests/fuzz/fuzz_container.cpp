// A container whose files were changed: headers, tensor table, page table, manifest.
//
// The input is a list of changes to a small intact container, so that inputs stay short and deep:
//   byte 0         bits 0-1: file (experts.bin, model.bin, manifest.json, model_spec.json)
//                  bit 2: make the checksums of header and table right again, so that deeper checks are
//                  reached bit 3: offsets count from the table instead of the start bit 4: a model in two
//                  parts; its files are experts.bin, the parts and the manifest
//   then 12 bytes  u32 offset, u64 value to put there; offset 2^32-1: cut the file to that many bytes
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/convert.hpp"
#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "tests/checkpoint/make_checkpoint.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace colibri::fuzz {
namespace {

namespace fs = std::filesystem;

using Files = std::array<const char*, 4>;
constexpr Files kFiles = {"experts.bin", "model.bin", "manifest.json", "model_spec.json"};
constexpr Files kStripedFiles = {"experts.bin", "experts.0.bin", "manifest.json", "experts.1.bin"};
constexpr std::size_t kHeaderBytes = 4096, kTableOffsetAt = 56, kHeaderHashAt = 80;
constexpr std::uint32_t kCut = 0xffffffffU;

std::uint64_t number_at(const std::string& bytes, std::size_t offset) {
  std::uint64_t value = 0;
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void put_number(std::string& bytes, std::size_t offset, std::uint64_t value) {
  for (std::size_t i = 0; i < sizeof value && offset + i < bytes.size(); ++i) {
    bytes[offset + i] = static_cast<char>(value >> (8 * i));
  }
}

void seal(std::string& bytes) {
  if (bytes.size() < kHeaderBytes) return;
  const std::uint64_t table = number_at(bytes, kTableOffsetAt);
  if (table < bytes.size() && bytes.size() - table > 8) {
    const auto body = std::as_bytes(std::span(bytes)).subspan(table, bytes.size() - table - 8);
    put_number(bytes, bytes.size() - 8, xxh3_64(body));
  }
  put_number(bytes, kHeaderHashAt, 0);
  put_number(bytes, kHeaderHashAt, xxh3_64(std::as_bytes(std::span(bytes)).first(kHeaderBytes)));
}

// The intact containers, made once, in a folder that goes at the end.
class Intact {
 public:
  explicit Intact(bool striped)
      : files_(striped ? kStripedFiles : kFiles),
        folder_(fs::temp_directory_path() /
                ("colibri_fuzz_container_" + std::to_string(::getpid()) + (striped ? "_striped" : ""))) {
    fs::create_directories(folder_ / "drive0");
    fs::create_directories(folder_ / "drive1");
    fuzz_check(test::write_synthetic_checkpoint(folder_ / "checkpoint", {}).is_ok(), "no checkpoint");
    ConvertOptions options;
    options.chunk_bytes = 4096;
    if (striped) options.stripe = {folder_ / "drive0", folder_ / "drive1"};
    fuzz_check(convert_checkpoint(folder_ / "checkpoint", model(), options).is_ok(), "no container");
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::ifstream file(model() / files_[i], std::ios::binary);
      contents_[i] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
  }
  ~Intact() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Intact(const Intact&) = delete;
  Intact& operator=(const Intact&) = delete;

  fs::path model() const { return folder_ / "model"; }
  const std::string& content(std::size_t file) const { return contents_[file]; }
  bool is_binary(std::size_t file) const { return fs::path(files_[file]).extension() == ".bin"; }
  // Through the link of a part.
  void write(std::size_t file, const std::string& bytes) const {
    std::ofstream stream(model() / files_[file], std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  Files files_;
  fs::path folder_;
  std::array<std::string, kFiles.size()> contents_;
};

void apply_changes(std::string& bytes, const std::uint8_t* data, std::size_t size, bool from_table) {
  const std::uint64_t base = from_table ? number_at(bytes, kTableOffsetAt) : 0;
  for (std::size_t at = 0; at + 12 <= size; at += 12) {
    std::uint32_t offset = 0;
    std::uint64_t value = 0;
    std::memcpy(&offset, data + at, sizeof offset);
    std::memcpy(&value, data + at + 4, sizeof value);
    if (offset == kCut) {
      bytes.resize(static_cast<std::size_t>(value % (bytes.size() + 1)));
    } else if (!bytes.empty()) {
      put_number(bytes, static_cast<std::size_t>((base + offset) % bytes.size()), value);
    }
  }
}

// Everything that a run would look at.
void use(const Container& container) {
  const ModelSpec& spec = container.spec();
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (std::uint32_t expert = 0; spec.layers[layer].moe && expert < spec.num_experts; ++expert) {
      const ExpertRecord record = container.record(layer, expert);
      fuzz_check(record.length == container.layout().record_bytes, "a record of another size");
      fuzz_check(record.file < container.expert_files().size(), "a record in no file");
      fuzz_check(!record.chunk_hashes.empty(), "a record without checksums");
    }
  }
  if (container.dense_bytes() > (std::uint64_t{1} << 26)) return;
  std::vector<std::byte> memory(container.dense_bytes() + 64);
  void* start = memory.data();
  std::size_t space = memory.size();
  std::align(64, container.dense_bytes(), start, space);
  static_cast<void>(container.read_dense({static_cast<std::byte*>(start), container.dense_bytes()}));
}

}  // namespace
}  // namespace colibri::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  if (size == 0) return 0;
  static const fuzz::Intact whole(false);
  static const fuzz::Intact striped(true);
  const fuzz::Intact& intact = (data[0] & 16U) != 0 ? striped : whole;
  const std::size_t file = data[0] & 3U;
  std::string bytes = intact.content(file);
  fuzz::apply_changes(bytes, data + 1, size - 1, (data[0] & 8U) != 0);
  if ((data[0] & 4U) != 0 && intact.is_binary(file)) fuzz::seal(bytes);
  intact.write(file, bytes);
  const bool changed = bytes != intact.content(file);
  if (const auto opened = Container::open(intact.model())) fuzz::use(*opened.value());
  const Status verified = verify_container(intact.model(), {});
  fuzz::fuzz_check(!(changed && verified.is_ok()), "verify did not see a change");
  intact.write(file, intact.content(file));
  return 0;
}
