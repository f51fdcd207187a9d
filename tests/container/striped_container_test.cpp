// Models whose experts lie in parts on several drives: where records are, what can be wrong with the
// parts and how it is named, and verification.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>

#include "io/checkpoint/convert.hpp"
#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "io/container/file_handle.hpp"
#include "io/container/free_space.hpp"
#include "tests/container/model_folder.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::seal_header;
using test::TemporaryFolder;

std::vector<std::byte> record_bytes(const Container& container, std::uint32_t layer, std::uint32_t expert) {
  const ExpertRecord record = container.record(layer, expert);
  const auto file = FileHandle::open_for_reading(container.expert_files()[record.file]);
  EXPECT_TRUE(file) << file.status().to_string();
  std::vector<std::byte> bytes(record.length);
  EXPECT_TRUE(file->read_at(record.offset, bytes));
  return bytes;
}

class StripedContainerTest : public test::ModelFolder {
 protected:
  void SetUp() override {
    make_checkpoint();
    for (const char* drive : {"a", "b", "c"}) fs::create_directory(folder_ / drive);
    convert(folder_ / "checkpoint", "model", {"a", "b"});
    part0_ = fs::read_symlink(model() / "experts.0.bin");
    part1_ = fs::read_symlink(model() / "experts.1.bin");
  }
  // experts.N.bin -> target
  void link(std::uint32_t part, const fs::path& target) {
    const fs::path path = model() / ("experts." + std::to_string(part) + ".bin");
    fs::remove(path);
    fs::create_symlink(target, path);
  }

  fs::path part0_, part1_;
};

TEST_F(StripedContainerTest, ExpertsLieByTheirIdOnTheDrives) {
  convert(folder_ / "checkpoint", "whole", {});
  const auto opened = Container::open(model());
  const auto whole = Container::open(folder_ / "whole");
  ASSERT_TRUE(opened) << opened.status().to_string();
  ASSERT_TRUE(whole);
  const Container& container = **opened;
  ASSERT_EQ(container.expert_files().size(), 2U);
  EXPECT_EQ(container.expert_bytes(), (*whole)->expert_bytes());
  EXPECT_EQ(part0_.parent_path(), fs::canonical(folder_ / "a"));
  EXPECT_EQ(part1_.parent_path(), fs::canonical(folder_ / "b"));
  std::set<std::pair<std::uint32_t, std::uint64_t>> places;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
      const ExpertRecord record = container.record(layer, expert);
      EXPECT_EQ(record.file, expert % 2);
      EXPECT_EQ(record.offset % 4096, 0U);
      EXPECT_GE(record.offset, 4096U);
      EXPECT_TRUE(places.insert({record.file, record.offset}).second);
      EXPECT_EQ(record_bytes(container, layer, expert), record_bytes(**whole, layer, expert));
      const ExpertRecord other = (*whole)->record(layer, expert);
      ASSERT_EQ(record.chunk_hashes.size(), other.chunk_hashes.size());
      EXPECT_TRUE(
          std::equal(other.chunk_hashes.begin(), other.chunk_hashes.end(), record.chunk_hashes.begin()));
    }
  }
  // Three of five experts a layer on the first drive; experts.bin has none.
  const std::uint64_t record = container.layout().record_bytes;
  EXPECT_GT(fs::file_size(part0_), 4096 + 3 * kLayers * record);
  EXPECT_LT(fs::file_size(part0_), 4096 + 3 * kLayers * record + 4096);
  EXPECT_LT(fs::file_size(part1_), 4096 + 2 * kLayers * record + 4096);
  EXPECT_LT(fs::file_size(model() / "experts.bin"), 3 * 4096U);
  EXPECT_EQ(verify_error(), "");
  // The dense part is the same file.
  EXPECT_EQ(test::read_file(model() / "model.bin"), test::read_file(folder_ / "whole/model.bin"));
}

TEST_F(StripedContainerTest, AMovedPartNeedsOnlyItsLink) {
  const fs::path moved = folder_ / "c/renamed.bin";
  fs::rename(part1_, moved);
  EXPECT_NE(open_error().find("experts.1.bin -> " + part1_.string()), std::string::npos) << open_error();
  link(1, moved);
  EXPECT_EQ(open_error(), "");
  link(1, "../c/renamed.bin");
  EXPECT_EQ(verify_error(), "");
}

TEST_F(StripedContainerTest, NamesLinkAndTargetOfEveryDamageAtOpen) {
  // Other models: other weights of the same shape, and one with three parts.
  ASSERT_TRUE(test::write_synthetic_checkpoint(folder_ / "twin",
                                               {.num_layers = kLayers, .num_experts = kExperts, .seed = 99}));
  ASSERT_TRUE(test::write_synthetic_checkpoint(folder_ / "other", {.num_layers = kLayers, .num_experts = 6}));
  convert(folder_ / "twin", "twin_model", {"a", "b"});
  convert(folder_ / "other", "other_model", {"a", "b"});
  convert(folder_ / "checkpoint", "three", {"a", "b", "c"});
  const std::string intact = test::read_file(part1_);
  const auto edit = [&](auto change) {
    return [this, &intact, change] {
      std::string bytes = intact;
      change(bytes);
      test::write_file(part1_, bytes);
    };
  };
  const auto part_of = [&](const char* name, int part) {
    return fs::read_symlink(folder_ / name / ("experts." + std::to_string(part) + ".bin"));
  };
  const std::string here = "experts.1.bin -> " + part1_.string();
  const struct {
    const char* what;
    std::function<void()> apply;
    std::vector<std::string> words;
  } damages[] = {
      {"truncated",
       edit([](std::string& b) { b.resize(b.size() - 1); }),
       {here, "truncated", "expected " + std::to_string(intact.size()) + " bytes"}},
      {"longer", edit([](std::string& b) { b += "x"; }), {here, "wrong file length"}},
      {"empty", edit([](std::string& b) { b.clear(); }), {here, "expected at least 4096 bytes, found 0"}},
      {"header", edit([](std::string& b) { b[3000] ^= 1; }), {here, "checksum of the header"}},
      {"table", edit([](std::string& b) { b[b.size() - 20] ^= 1; }), {here, "damaged page table"}},
      {"index beyond the parts",
       edit([](std::string& b) {
         b[20] = 7;
         seal_header(b);
       }),
       {here, "in the place of another", "expected part 1 of 2, found part 7"}},
      {"swapped",
       [&] {
         link(0, part1_);
         link(1, part0_);
       },
       {"experts.0.bin -> " + part1_.string(), "expected part 0 of 2, found part 1"}},
      {"no link", [&] { fs::remove(model() / "experts.1.bin"); }, {"missing", "experts.1.bin", "ln -s FILE"}},
      {"no file", [&] { fs::remove(part1_); }, {here, "does not exist"}},
      {"a folder", [&] { link(1, folder_ / "a"); }, {"experts.1.bin", "not a regular file"}},
      {"dense file", [&] { link(1, model() / "model.bin"); }, {"experts.1.bin -> ", "expected 3, found 1"}},
      {"another model",
       [&] { link(1, part_of("other_model", 1)); },
       {"experts.1.bin -> " + part_of("other_model", 1).string(), "another model_spec.json"}},
      {"other weights",
       [&] { link(1, part_of("twin_model", 1)); },
       {"experts.1.bin -> " + part_of("twin_model", 1).string(), "other weights"}},
      {"of three parts",
       [&] { link(1, part_of("three", 1)); },
       {"experts.1.bin -> " + part_of("three", 1).string(), "expected part 1 of 2, found one of 3"}},
  };
  for (const auto& damage : damages) {
    damage.apply();
    const std::string message = open_error();
    EXPECT_NE(message, "") << damage.what;
    for (const std::string& word : damage.words) {
      EXPECT_NE(message.find(word), std::string::npos) << damage.what << ": " << word << " in " << message;
    }
    test::write_file(part1_, intact);
    link(0, part0_);
    link(1, part1_);
    ASSERT_EQ(open_error(), "") << damage.what;
  }
}

TEST_F(StripedContainerTest, VerifyFindsEveryFlippedByteOfASample) {
  std::uint64_t random = 4242;
  for (const fs::path& part : {part0_, part1_, model() / "experts.bin"}) {
    const std::string intact = test::read_file(part);
    for (int i = 0; i < 60; ++i) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      const std::size_t position = (random >> 20) % intact.size();
      std::string bytes = intact;
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << (random >> 61)));
      test::write_file(part, bytes);
      EXPECT_NE(verify_error(), "") << part << " byte " << position;
    }
    test::write_file(part, intact);
    ASSERT_EQ(verify_error(), "");
  }
}

TEST_F(StripedContainerTest, VerifyNamesTheExpertAndItsFile) {
  const auto container = Container::open(model());
  const ExpertRecord record = (*container)->record(2, 3);
  std::string bytes = test::read_file(part1_);
  bytes[record.offset + 4096 + 5] ^= 1;
  test::write_file(part1_, bytes);
  const std::string message = verify_error();
  for (const std::string& word :
       {std::string("layer 2, expert 3, chunk 1"), "offset " + std::to_string(record.offset + 4096),
        "experts.1.bin -> " + part1_.string()}) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

TEST_F(StripedContainerTest, VerifyCountsAllBytesAndRefusesAPartTooMany) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  ASSERT_TRUE(verify_container(model(), [&](std::uint64_t done, std::uint64_t all) {
    last = done;
    total = all;
  }));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, fs::file_size(part0_) + fs::file_size(part1_) + fs::file_size(model() / "experts.bin") +
                       fs::file_size(model() / "model.bin") + fs::file_size(model() / "model_spec.json"));
  link(2, part1_);
  EXPECT_NE(verify_error().find("not in the manifest"), std::string::npos) << verify_error();
}

TEST(FreeSpaceTest, AddsUpWhatGoesToOneFileSystem) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a");
  fs::create_directory(folder / "b");
  const std::uint64_t available = fs::space(folder.path()).available;
  // Each alone would fit with much to spare, both do not.
  FreeSpace space;
  space.need(folder / "a", available / 4 * 3);
  EXPECT_TRUE(space.check());
  space.need(folder / "b", available / 4 * 3);
  const std::string message = space.check().to_string();
  EXPECT_NE(message.find((folder / "a").string()), std::string::npos) << message;
  EXPECT_NE(message.find("not enough free space"), std::string::npos) << message;
}

}  // namespace
}  // namespace colibri
