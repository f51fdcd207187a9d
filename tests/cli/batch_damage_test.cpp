// Damaged containers and checkpoints through the program: a sentence that names the file, a status, no
// crash; and when one record of one expert is damaged, only the requests that need it fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kRecordBytes = 3 * 256 * 128 * 2;  // of the demo: three bf16 matrices
constexpr int kExperts = 32;

void overwrite(const std::string& path, std::uint64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

void flip(const std::string& path, std::uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.close();
  overwrite(path, offset, std::string(1, flipped));
}

std::string little_endian(std::uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

std::vector<Json> short_requests() {
  std::vector<Json> requests = demo_requests();
  requests.resize(8);
  // Few tokens, so that there are experts which some requests need and others do not.
  for (Json& line : requests) {
    line = {
        {"id", line["id"]}, {"prompt", line["prompt"].get<std::string>().substr(0, 12)}, {"max_tokens", 2}};
  }
  return requests;
}

class DamagedContainer : public testing::Test {
 protected:
  // A run that must fail as a whole, before it leaves anything.
  void expect_refused(const std::vector<std::string>& words) {
    write_file(input_, jsonl(short_requests()));
    const RunResult run = run_colibri({"batch", model_, input_, "-o", output_});
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_TRUE(contains(run.err, "colibri: error: ")) << run.err;
    for (const std::string& word : words)
      EXPECT_TRUE(contains(run.err, word)) << word << " not in: " << run.err;
    EXPECT_FALSE(fs::exists(output_));
    EXPECT_FALSE(fs::exists(output_ + ".journal"));
  }

  TemporaryFolder folder_;
  std::string model_ = copy_of_demo_model(folder_);
  std::string experts_ = model_ + "/experts.bin";
  std::string dense_ = model_ + "/model.bin";
  std::string input_ = folder_.file("in.jsonl");
  std::string output_ = folder_.file("out.jsonl");
};

TEST_F(DamagedContainer, OneRecordFailsOnlyTheRequestsThatNeedIt) {
  const std::string trace = folder_.file("routing.jsonl");
  const BatchRun whole(jsonl(short_requests()), {"--trace-routing", trace});
  ASSERT_EQ(whole.status(), 0) << whole.err();
  std::map<std::pair<int, int>, std::set<std::string>> users;  // of each (layer, expert)
  for (const Json& line : parse_jsonl(read_file(trace))) {
    if (!line.contains("position")) continue;  // the header
    for (const Json& expert : line["experts"])
      users[{line["layer"], expert}].insert(line["id"].get<std::string>());
  }
  const auto record = std::find_if(users.begin(), users.end(), [](const auto& entry) {
    return entry.first.first > 0 && entry.second.size() > 1 && entry.second.size() < 7;
  });
  ASSERT_NE(record, users.end());
  const auto [layer, expert] = record->first;
  flip(experts_,
       kHeaderBytes + static_cast<std::uint64_t>(layer * kExperts + expert) * kRecordBytes + 70'000);
  const std::string name = "layer " + std::to_string(layer) + ", expert " + std::to_string(expert);

  for (const char* memory : {"100%", "25%", "min"}) {
    const BatchRun damaged(jsonl(short_requests()), {"--experts-memory", memory}, model_);
    EXPECT_EQ(damaged.status(), 3) << damaged.err();
    const auto expected = whole.results();
    for (const auto& [index, result] : damaged.results()) {
      if (!record->second.contains(result["id"].get<std::string>())) {
        EXPECT_EQ(result, expected.at(index)) << memory;
        continue;
      }
      ASSERT_TRUE(result.contains("error")) << result << " with " << memory << " needs " << name;
      EXPECT_EQ(result["error"]["code"], "corrupt");
      EXPECT_TRUE(contains(result["error"]["message"], name)) << result;
      EXPECT_TRUE(contains(result["error"]["message"], "experts.bin")) << result;
    }
    EXPECT_EQ(damaged.results().size(), expected.size());
  }
}

TEST_F(DamagedContainer, TruncatedFiles) {
  const std::uint64_t length = fs::file_size(experts_);
  for (const std::uint64_t bytes :
       {length - 1, length / 2, std::uint64_t{5000}, std::uint64_t{100}, std::uint64_t{0}}) {
    fs::resize_file(experts_, bytes);
    expect_refused({"experts.bin"});
  }
}

TEST_F(DamagedContainer, FlippedBytesOfDenseWeightsAndTables) {
  for (const std::uint64_t offset :
       {std::uint64_t{10'000}, fs::file_size(dense_) / 2, fs::file_size(dense_) - 20}) {
    flip(dense_, offset);
    expect_refused({"model.bin"});
    flip(dense_, offset);
  }
  flip(experts_, fs::file_size(experts_) - 2000);  // in the page table
  expect_refused({"experts.bin"});
}

TEST_F(DamagedContainer, WrongMagicAndMissingFiles) {
  overwrite(dense_, 0, "GGUF");
  expect_refused({"model.bin", "magic"});
  for (const char* name : {"model.bin", "experts.bin", "model_spec.json"}) {
    fs::remove(model_ + "/" + name);
    expect_refused({name});
    fs::copy_file(demo_model() + "/" + name, model_ + "/" + name);
  }
}

// Every number of both headers, one after the other.
TEST_F(DamagedContainer, SizesOfTwoToTheSixty) {
  for (const std::string& file : {dense_, experts_}) {
    const std::string header = read_file(file).substr(0, 96);
    for (std::uint64_t offset = 8; offset < header.size(); offset += 8) {
      overwrite(file, offset, little_endian(std::uint64_t{1} << 60));
      expect_refused({fs::path(file).filename()});
      overwrite(file, 0, header);
    }
  }
}

class DamagedCheckpoint : public testing::Test {
 protected:
  void copy_golden(const std::string& name) { fs::copy(COLIBRI_TEST_DATA "/golden/" + name, checkpoint_); }
  void expect_refused(const std::vector<std::string>& words) {
    const RunResult run = run_colibri({"convert", checkpoint_, folder_.file("model")});
    EXPECT_EQ(run.status, 1) << run.err;
    for (const std::string& word : words)
      EXPECT_TRUE(contains(run.err, word)) << word << " not in: " << run.err;
  }

  TemporaryFolder folder_;
  std::string checkpoint_ = folder_.file("checkpoint");
};

TEST_F(DamagedCheckpoint, NotANumberInARouter) {
  copy_golden("qwen3_moe");
  const std::string file = checkpoint_ + "/model.safetensors";
  const std::string bytes = read_file(file);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::string name = "model.layers.1.mlp.gate.weight";
  const Json tensor = Json::parse(bytes.substr(8, header_bytes))[name];
  ASSERT_EQ(tensor["dtype"], "BF16");
  overwrite(file, 8 + header_bytes + tensor["data_offsets"][0].get<std::uint64_t>() + 2 * 33, "\xC0\x7F");
  expect_refused({name});
}

TEST_F(DamagedCheckpoint, AHeaderOfTwoToTheSixtyBytes) {
  copy_golden("qwen3_moe");
  overwrite(checkpoint_ + "/model.safetensors", 0, little_endian(std::uint64_t{1} << 60));
  expect_refused({"model.safetensors", "1152921504606846976"});
  EXPECT_FALSE(fs::exists(folder_.file("model")));
}

TEST_F(DamagedCheckpoint, AMissingShard) {
  copy_golden("qwen3_moe_sharded");
  fs::remove(checkpoint_ + "/model-00002-of-00003.safetensors");
  expect_refused({"model-00002-of-00003.safetensors"});
  EXPECT_FALSE(fs::exists(folder_.file("model")));
}

}  // namespace
}  // namespace colibri::test
