// Opening containers: intact ones, and a table of damages with the words of their errors.
#include "io/container/container.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <utility>

#include "io/checkpoint/convert.hpp"
#include "io/container/checksum.hpp"
#include "io/container/container_format.hpp"
#include "tests/container/model_folder.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::number_at;
using test::put_number;
using test::seal_header;

class ContainerTest : public test::ModelFolder {
 protected:
  void SetUp() override {
    make_checkpoint();
    convert(folder_ / "checkpoint", "model");
    experts_ = test::read_file(model() / "experts.bin");
    dense_ = test::read_file(model() / "model.bin");
    spec_ = test::read_file(model() / "model_spec.json");
    manifest_ = test::read_file(model() / "manifest.json");
  }
  void restore() {
    test::write_file(model() / "experts.bin", experts_);
    test::write_file(model() / "model.bin", dense_);
    test::write_file(model() / "model_spec.json", spec_);
    test::write_file(model() / "manifest.json", manifest_);
  }
  std::string experts_, dense_, spec_, manifest_;
};

void seal_table(std::string& bytes) {
  const std::uint64_t offset = number_at(bytes, 56);
  const auto body = std::as_bytes(std::span(bytes)).subspan(offset, bytes.size() - offset - 8);
  put_number(bytes, bytes.size() - 8, xxh3_64(body));
}

TEST_F(ContainerTest, SaysWhereEverythingIs) {
  const auto opened = Container::open(model());
  ASSERT_TRUE(opened) << opened.status().to_string();
  const Container& container = **opened;
  // Specification and both tables (from their offset to the end of the file): weights included.
  Sha256Stream identity;
  identity.update(std::as_bytes(std::span(spec_)));
  identity.update(std::as_bytes(std::span(dense_)).subspan(number_at(dense_, 56)));
  identity.update(std::as_bytes(std::span(experts_)).subspan(number_at(experts_, 56)));
  EXPECT_EQ(container.digest(), to_hex(identity.digest()));
  EXPECT_EQ(container.expert_files().size(), 1u);
  EXPECT_EQ(container.expert_bytes(), 3u * 5 * container.layout().record_bytes);
  EXPECT_TRUE(container.tokenizer_path().empty());
  EXPECT_EQ(container.find("layers.3.qkv.weight"), nullptr);
  EXPECT_EQ(container.find("layers.0.q_norm.weight")->columns, 16u);
  std::uint64_t expected_offset = 4096;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    for (std::uint32_t expert = 0; expert < 5; ++expert) {
      const ExpertRecord record = container.record(layer, expert);
      EXPECT_EQ(record.offset, expected_offset);
      EXPECT_EQ(record.length % 4096, 0u);
      // hidden 64, width 32, bf16: 3 * 64 * 32 * 2 = 12288 bytes are three chunks.
      ASSERT_EQ(record.chunk_hashes.size(), 3u);
      for (std::size_t chunk = 0; chunk < 3; ++chunk) {
        const auto bytes = std::as_bytes(std::span(experts_)).subspan(record.offset + chunk * kChunk, kChunk);
        EXPECT_EQ(record.chunk_hashes[chunk], xxh3_64(bytes));
      }
      expected_offset += record.length;
    }
  }
  EXPECT_EQ(verify_error(), "");
}

TEST_F(ContainerTest, OtherWeightsAreAnotherModel) {
  ASSERT_TRUE(
      test::write_synthetic_checkpoint(folder_ / "other", {.num_layers = 3, .num_experts = 5, .seed = 99}));
  ConvertOptions options;
  options.chunk_bytes = kChunk;
  ASSERT_TRUE(convert_checkpoint(folder_ / "other", folder_ / "other-model", options));
  EXPECT_EQ(test::read_file(folder_ / "other-model" / "model_spec.json"), spec_);
  EXPECT_NE(Container::open(folder_ / "other-model").value()->digest(),
            Container::open(model()).value()->digest());
}

TEST_F(ContainerTest, NamesEveryDamageAtOpen) {
  const auto edit = [this](const char* name, const std::string& original, auto change) {
    return [this, name, original, change] {
      std::string bytes = original;
      change(bytes);
      test::write_file(model() / name, bytes);
    };
  };
  const std::string length = std::to_string(experts_.size());
  const struct {
    const char* what;
    std::function<void()> apply;
    std::vector<std::string> parts;
  } damages[] = {
      {"truncated",
       edit("experts.bin", experts_, [](auto& b) { b.resize(b.size() - 1); }),
       {"experts.bin", "expected " + length, "found " + std::to_string(experts_.size() - 1)}},
      {"longer", edit("experts.bin", experts_, [](auto& b) { b += "x"; }), {"expected " + length}},
      {"empty", edit("model.bin", dense_, [](auto& b) { b.clear(); }), {"model.bin", "found 0"}},
      {"half a header",
       edit("model.bin", dense_, [](auto& b) { b.resize(2000); }),
       {"expected at least 4096"}},
      {"magic",
       edit("experts.bin", experts_, [](auto& b) { b[0] = 'X'; }),
       {"wrong magic", "expected COLIBRI\\x00", "found XOLIBRI\\x00"}},
      {"version",
       edit("model.bin", dense_, [](auto& b) { b[8] = 9; }),
       {"unknown container version", "expected 1, found 9"}},
      {"byte order",
       edit("model.bin", dense_, [](auto& b) { std::swap(b[12], b[15]); }),
       {"wrong byte order"}},
      {"kind", edit("model.bin", experts_, [](auto&) {}), {"expected 1, found 2"}},
      {"length of 2^60",
       edit("experts.bin", experts_, [](auto& b) { put_number(b, 72, 1ULL << 60); }),
       {"expected 1152921504606846976 bytes"}},
      {"table of 2^60",
       edit("experts.bin", experts_,
            [](auto& b) {
              put_number(b, 64, 1ULL << 60);
              seal_header(b);
            }),
       {"outside the file", "1152921504606846976"}},
      {"table wraps around",
       edit("experts.bin", experts_,
            [](auto& b) {
              put_number(b, 56, ~0ULL - 7);
              put_number(b, 64, b.size() + 8);
              seal_header(b);
            }),
       {"outside the file"}},
      {"table elsewhere",
       edit("experts.bin", experts_,
            [](auto& b) {
              put_number(b, 56, number_at(b, 56) - 4096);
              put_number(b, 64, number_at(b, 64) + 4096);
              seal_header(b);
            }),
       {"expected the page table at"}},
      {"header byte",
       edit("experts.bin", experts_, [](auto& b) { b[3000] ^= 1; }),
       {"checksum of the header"}},
      {"digest",
       edit("experts.bin", experts_,
            [](auto& b) {
              b[24] ^= 1;
              seal_header(b);
            }),
       {"another model_spec.json"}},
      {"spec changed",
       edit("model_spec.json", spec_, [](auto& b) { b += " "; }),
       {"another model_spec.json"}},
      {"spec no json",
       edit("model_spec.json", spec_, [](auto& b) { b.resize(b.size() / 2); }),
       {"model_spec.json", "not valid JSON"}},
      {"page table byte",
       edit("experts.bin", experts_, [](auto& b) { b[b.size() - 30] ^= 1; }),
       {"damaged page table", "expected checksum"}},
      {"page table entry",
       edit("experts.bin", experts_,
            [](auto& b) {
              b[number_at(b, 56) + 32 + 16] ^= 1;
              seal_table(b);
            }),
       {"damaged page table", "at byte 48"}},
      {"tensor table byte",
       edit("model.bin", dense_, [](auto& b) { b[number_at(b, 56) + 20] ^= 1; }),
       {"damaged tensor table", "expected checksum"}},
      {"tensor count",
       edit("model.bin", dense_,
            [](auto& b) {
              put_number(b, number_at(b, 56) + 8, ~0ULL);
              seal_table(b);
            }),
       {"damaged tensor table", "4294967295 tensors"}},
      {"tensor bytes",
       edit("model.bin", dense_,
            [](auto& b) {
              put_number(b, number_at(b, 56) + 16 + 32, 1ULL << 60);
              seal_table(b);
            }),
       {"embedding.weight expected 16384 bytes, found 1152921504606846976"}},
      {"tensor offset",
       edit("model.bin", dense_,
            [](auto& b) {
              put_number(b, number_at(b, 56) + 16 + 24, ~0ULL - 63);
              seal_table(b);
            }),
       {"embedding.weight lies at"}},
      {"tensor format",
       edit("model.bin", dense_,
            [](auto& b) {
              b[number_at(b, 56) + 16 + 12] = 77;
              seal_table(b);
            }),
       {"unknown format 77"}},
      {"tensor shape",
       edit("model.bin", dense_,
            [](auto& b) {
              put_number(b, number_at(b, 56) + 16 + 16, ~0ULL);
              seal_table(b);
            }),
       {"embedding.weight has the shape"}},
      {"tensor renamed",
       edit("model.bin", dense_,
            [](auto& b) {
              b[b.find("embedding.weight", number_at(b, 56))] = 'E';
              seal_table(b);
            }),
       {"expected tensor embedding.weight, found Embedding.weight"}},
      {"no experts", [this] { fs::remove(model() / "experts.bin"); }, {"experts.bin"}},
      {"a folder for a file",
       [this] {
         fs::remove(model() / "model.bin");
         fs::create_directory(model() / "model.bin");
       },
       {"not a regular file"}},
  };
  for (const auto& damage : damages) {
    damage.apply();
    const std::string message = open_error();
    EXPECT_NE(message, "") << damage.what;
    for (const std::string& part : damage.parts) {
      EXPECT_NE(message.find(part), std::string::npos) << damage.what << ": " << part << " in " << message;
    }
    EXPECT_NE(message.find(model().string()), std::string::npos) << damage.what << ": " << message;
    fs::remove_all(model() / "model.bin");
    restore();
    ASSERT_EQ(open_error(), "") << damage.what;
  }
}

TEST_F(ContainerTest, RefusesFoldersThatAreNoModel) {
  EXPECT_NE(Container::open(folder_ / "none").status().to_string().find("does not exist"), std::string::npos);
  EXPECT_NE(Container::open(model() / "model.bin").status().to_string().find("not a folder"),
            std::string::npos);
  EXPECT_NE(Container::open(folder_ / "checkpoint").status().to_string().find("colibri convert"),
            std::string::npos);
  EXPECT_NE(Container::open(folder_.path()).status().to_string().find("model_spec.json"), std::string::npos);
}

TEST_F(ContainerTest, ReadDenseFindsAFlippedByte) {
  const auto intact = Container::open(model());
  ASSERT_TRUE(intact);
  const DenseTensor* tensor = (*intact)->find("layers.1.router.weight");
  std::string bytes = dense_;
  bytes[4096 + tensor->offset + tensor->bytes - 1] ^= 0x10;
  test::write_file(model() / "model.bin", bytes);
  const auto damaged = Container::open(model());
  ASSERT_TRUE(damaged);
  std::vector<std::byte> memory((*damaged)->dense_bytes());
  const std::string message = (*damaged)->read_dense(memory).to_string();
  EXPECT_NE(message.find("layers.1.router.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("offset " + std::to_string(4096 + tensor->offset)), std::string::npos) << message;
  memory.pop_back();
  EXPECT_FALSE((*damaged)->read_dense(memory));
}

TEST_F(ContainerTest, ReadDenseStopsWhenItIsAsked) {
  const auto intact = Container::open(model());
  ASSERT_TRUE(intact);
  std::vector<std::byte> memory((*intact)->dense_bytes());
  int asked = 0;
  const auto stops_at = [&asked](int nth) { return [&asked, nth] { return ++asked == nth; }; };
  EXPECT_TRUE((*intact)->read_dense(memory, stops_at(0)));
  const int times = std::exchange(asked, 0);
  EXPECT_GE(times, static_cast<int>((*intact)->dense_tensors().size()));
  EXPECT_EQ((*intact)->read_dense(memory, stops_at(times / 2)).code(), ErrorCode::cancelled);
  EXPECT_EQ(asked, times / 2);
}

TEST_F(ContainerTest, VerifyFindsEveryFlippedByteOfASample) {
  const struct {
    const char* name;
    const std::string* content;
  } files[] = {{"experts.bin", &experts_},
               {"model.bin", &dense_},
               {"model_spec.json", &spec_},
               {"manifest.json", &manifest_}};
  std::uint64_t random = 12345;
  for (const auto& file : files) {
    // Every third byte of the small ones, random ones of the others; a bit each.
    const bool small = file.content->size() < 4000;
    const std::size_t tries = small ? file.content->size() / 3 : 100;
    for (std::size_t i = 0; i < tries; ++i) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      const std::size_t position = small ? 3 * i : (random >> 20) % file.content->size();
      std::string bytes = *file.content;
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << (random >> 61)));
      test::write_file(model() / file.name, bytes);
      EXPECT_NE(verify_error(), "") << file.name << " byte " << position;
    }
    test::write_file(model() / file.name, *file.content);
    ASSERT_EQ(verify_error(), "");
  }
}

TEST_F(ContainerTest, VerifyNamesTheExpert) {
  const auto container = Container::open(model());
  const ExpertRecord record = (*container)->record(2, 3);
  std::string bytes = experts_;
  bytes[record.offset + kChunk + 5] ^= 1;
  test::write_file(model() / "experts.bin", bytes);
  const std::string message = verify_error();
  for (const std::string& part :
       {std::string("layer 2, expert 3, chunk 1"), "offset " + std::to_string(record.offset + kChunk),
        std::string("experts.bin")}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(ContainerTest, VerifyNamesMissingAndAddedFiles) {
  test::write_file(model() / "tokenizer.json", "{}");
  EXPECT_NE(verify_error().find("not in the manifest"), std::string::npos);
  fs::remove(model() / "tokenizer.json");
  std::string manifest = manifest_;
  manifest.replace(manifest.find("\"experts.bin\""), 13, "\"../../x.bin\"");
  test::write_file(model() / "manifest.json", manifest);
  EXPECT_NE(verify_error().find("unknown file"), std::string::npos) << verify_error();
  fs::remove(model() / "manifest.json");
  EXPECT_NE(verify_error().find("manifest.json"), std::string::npos);
}

TEST_F(ContainerTest, VerifyReportsProgress) {
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  ASSERT_TRUE(verify_container(model(), [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  }));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, experts_.size() + dense_.size() + spec_.size());
}

}  // namespace
}  // namespace colibri
