// Errors of containers tell programs where they happened: the file, and the offset in it, as data.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/container/container.hpp"
#include "io/container/file_handle.hpp"
#include "tests/container/model_folder.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::number_at;
using test::put_number;
using test::seal_header;

constexpr std::uint64_t kTableOffsetAt = 56;  // in the header

class ErrorPlaceTest : public test::ModelFolder {
 protected:
  void SetUp() override {
    make_checkpoint();
    convert(folder_ / "checkpoint", "model");
    for (const char* name : {"experts.bin", "model.bin", "model_spec.json", "manifest.json"})
      intact_[name] = test::read_file(model() / name);
    experts_table_ = number_at(intact_["experts.bin"], kTableOffsetAt);
    dense_table_ = number_at(intact_["model.bin"], kTableOffsetAt);
  }
  void restore() {
    for (const auto& [name, bytes] : intact_) test::write_file(model() / name, bytes);
  }
  // Flips a bit of a file's byte.
  void flip(const std::string& name, std::uint64_t at) {
    std::string bytes = test::read_file(model() / name);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    test::write_file(model() / name, bytes);
  }
  void change(const std::string& name, const std::function<void(std::string&)>& how) {
    std::string bytes = test::read_file(model() / name);
    how(bytes);
    test::write_file(model() / name, bytes);
  }
  Status opened() const { return Container::open(model()).status(); }
  // Opens the model, which must go well, and reads its dense weights.
  Status dense_read() const {
    const auto container = Container::open(model());
    EXPECT_TRUE(container) << container.status().to_string();
    if (!container) return {};
    std::vector<std::byte> memory((*container)->dense_bytes());
    return (*container)->read_dense(memory);
  }

  std::map<std::string, std::string> intact_;
  std::uint64_t experts_table_ = 0, dense_table_ = 0;
};

TEST_F(ErrorPlaceTest, OfEveryKindOfDamage) {
  const auto intact = Container::open(model());
  ASSERT_TRUE(intact) << intact.status().to_string();
  const DenseTensor& tensor = (*intact)->dense_tensors()[3];
  const ExpertRecord record = (*intact)->record(1, 2);
  const auto open = [this] { return opened(); };
  const auto dense = [this] { return dense_read(); };
  const auto verify = [this] { return verify_container(model(), {}); };
  constexpr std::uint64_t kNone = Status::kNoOffset;
  const struct {
    const char* what;
    std::function<void()> damage;
    std::function<Status()> look;
    std::string file;  // in the folder; empty: the folder itself
    std::uint64_t offset;
  } cases[] = {
      {"magic", [&] { flip("experts.bin", 3); }, open, "experts.bin", 0},
      {"version", [&] { flip("model.bin", 8); }, open, "model.bin", 8},
      {"byte order", [&] { flip("model.bin", 12); }, open, "model.bin", 12},
      {"kind", [&] { flip("model.bin", 16); }, open, "model.bin", 16},
      {"header", [&] { flip("experts.bin", 100); }, open, "experts.bin", 80},
      {"length", [&] { change("experts.bin", [](auto& b) { b += "x"; }); }, open, "experts.bin", 72},
      {"cut in the header", [&] { change("model.bin", [](auto& b) { b.resize(99); }); }, open, "model.bin",
       99},
      {"table outside",
       [&] {
         change("experts.bin", [](auto& b) {
           put_number(b, 64, 1ULL << 60);
           seal_header(b);
         });
       },
       open, "experts.bin", 56},
      {"other spec", [&] { change("model_spec.json", [](auto& b) { b += "\n"; }); }, open, "model.bin", 24},
      {"spec is no JSON", [&] { flip("model_spec.json", 0); }, open, "model_spec.json", kNone},
      {"no spec", [&] { fs::remove(model() / "model_spec.json"); }, open, "", kNone},
      {"no dense weights", [&] { fs::remove(model() / "model.bin"); }, open, "model.bin", kNone},
      {"page table", [&] { flip("experts.bin", experts_table_ + 40); }, open, "experts.bin",
       intact_["experts.bin"].size() - 8},
      {"tensor table", [&] { flip("model.bin", dense_table_ + 40); }, open, "model.bin",
       intact_["model.bin"].size() - 8},
      {"entry of the page table",
       [&] {
         change("experts.bin", [&](auto& b) {
           b[experts_table_ + 32 + 4] = 2;  // the layer of the first record
           const auto body = std::as_bytes(std::span(b)).subspan(experts_table_);
           put_number(b, b.size() - 8, xxh3_64(body.first(body.size() - 8)));
         });
       },
       open, "experts.bin", experts_table_ + 32 + 4},
      {"entry of the tensor table",
       [&] {
         change("model.bin", [&](auto& b) {
           b[dense_table_ + 16 + 2 * 48 + 8] = 7;  // of the third tensor: packed or not
           const auto body = std::as_bytes(std::span(b)).subspan(dense_table_);
           put_number(b, b.size() - 8, xxh3_64(body.first(body.size() - 8)));
         });
       },
       open, "model.bin", dense_table_ + 16 + 2 * 48},
      {"a dense weight", [&] { flip("model.bin", 4096 + tensor.offset + 5); }, dense, "model.bin",
       4096 + tensor.offset},
      {"a dense weight, verified", [&] { flip("model.bin", 4096 + tensor.offset + 5); }, verify, "model.bin",
       4096 + tensor.offset},
      {"a chunk of an expert", [&] { flip("experts.bin", record.offset + kChunk + 9); }, verify,
       "experts.bin", record.offset + kChunk},
      {"manifest is no JSON", [&] { flip("manifest.json", 0); }, verify, "manifest.json", kNone},
      {"manifest of another model", [&] { change("manifest.json", [](auto& b) { b += "\n"; }); }, verify,
       "manifest.json", kNone},
      {"no manifest", [&] { fs::remove(model() / "manifest.json"); }, verify, "manifest.json", kNone},
  };
  for (const auto& one : cases) {
    one.damage();
    const Status status = one.look();
    EXPECT_FALSE(status.is_ok()) << one.what;
    EXPECT_EQ(status.file(), one.file.empty() ? model().string() : (model() / one.file).string())
        << one.what << ": " << status.to_string();
    EXPECT_EQ(status.offset(), one.offset) << one.what << ": " << status.to_string();
    restore();
  }
  EXPECT_TRUE(dense_read().is_ok());
}

// The file shrinks between opening and reading.
TEST_F(ErrorPlaceTest, OfAReadThatFindsTheEnd) {
  const auto file = FileHandle::open_for_reading(model() / "model.bin");
  ASSERT_TRUE(file) << file.status().to_string();
  std::vector<std::byte> bytes(100);
  const Status status = file->read_at(file->size() - 60, bytes);
  EXPECT_EQ(status.code(), ErrorCode::corrupt);
  EXPECT_EQ(status.file(), (model() / "model.bin").string());
  EXPECT_EQ(status.offset(), file->size());
}

// A part behind a link is told by the link, which is what the model's folder holds.
TEST_F(ErrorPlaceTest, OfPartsBehindLinks) {
  fs::create_directories(folder_ / "a");
  fs::create_directories(folder_ / "b");
  convert(folder_ / "checkpoint", "striped", {"a", "b"});
  const fs::path link = folder_ / "striped" / "experts.1.bin";
  ASSERT_TRUE(fs::is_symlink(link));
  std::string bytes = test::read_file(link);
  bytes[100] = 'x';
  test::write_file(fs::canonical(link), bytes);
  const Status status = Container::open(folder_ / "striped").status();
  EXPECT_EQ(status.file(), link.string()) << status.to_string();
  EXPECT_EQ(status.offset(), 80U);
  EXPECT_NE(status.to_string().find(link.string() + " -> "), std::string::npos) << status.to_string();
  fs::remove(link);
  EXPECT_EQ(Container::open(folder_ / "striped").status().file(), link.string());
}

}  // namespace
}  // namespace colibri
