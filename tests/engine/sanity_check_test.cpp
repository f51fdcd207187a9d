// check_sanity: goldens and the demo pass, with both kinds of pipelines; a model whose files are intact but
// whose weights are not is found, by name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <colibri/block_session.hpp>
#include <colibri/sanity_check.hpp>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "io/checkpoint/safetensors.hpp"
#include "io/container/checksum.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModel = "olmoe";  // bf16 in one file; all layers have experts

// The pipeline of requests, and that of hidden states.
std::vector<std::string> pipelines() {
  return {std::string(default_pipeline_yaml()), std::string(block_pipeline_yaml())};
}

std::unique_ptr<Engine> open(const fs::path& container, const std::string& yaml) {
  return open_pipeline(container, pipeline_from(yaml, {{"memory.experts", "50%"}}));
}

void expect_sane(const fs::path& container) {
  for (const std::string& yaml : pipelines()) {
    const auto engine = open(container, yaml);
    ASSERT_NE(engine, nullptr);
    const auto report = check_sanity(*engine);
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_TRUE(report->status.is_ok()) << report->status.to_string();
    const ModelSpec& spec = engine->spec();
    ASSERT_EQ(report->layers.size(), spec.num_moe_layers());
    for (const LayerSanity& layer : report->layers) {
      EXPECT_TRUE(spec.layers[layer.layer].moe);
      EXPECT_GT(layer.distinct_experts, spec.num_experts_per_token);
      EXPECT_LE(layer.distinct_experts, spec.num_experts);
      // The mean of the shares is k / E: the largest is no smaller.
      EXPECT_GE(layer.largest_share * spec.num_experts, spec.num_experts_per_token);
      EXPECT_LE(layer.largest_share, 0.9);
    }
  }
}

class SaneGolden : public ::testing::TestWithParam<std::string> {};
TEST_P(SaneGolden, Passes) { expect_sane(golden_container(GetParam(), "config.json", "auto")); }
INSTANTIATE_TEST_SUITE_P(Goldens, SaneGolden, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

TEST(SanityCheck, TheDemoPasses) {
  expect_sane(container_of(fs::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/checkpoint",
                           "config.json", "auto"));
}

// Counted with the recorder of the tests, from the tokens that the header says.
TEST(SanityCheck, CountsWhatTheTokensPick) {
  const auto engine = open(golden_container(kModel, "config.json", "auto"), pipelines()[0]);
  ASSERT_NE(engine, nullptr);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 64; ++i)
    tokens.push_back((2 * (5 * i % 64) + 1) * static_cast<int>(engine->spec().vocab_size) / 128);
  ValueRecorder recorder;
  run_job(*engine, {score_request(tokens)}, {.trace = &recorder});
  const auto report = check_sanity(*engine);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  for (const LayerSanity& layer : report->layers) {
    std::map<std::uint32_t, int> rows;  // by expert
    for (std::uint32_t position = 0; position < 64; ++position)
      for (const auto& [expert, weight] : recorder.picks[{layer.layer, position}]) ++rows[expert];
    EXPECT_EQ(layer.distinct_experts, rows.size());
    const auto busiest = std::max_element(rows.begin(), rows.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    EXPECT_EQ(layer.busiest_expert, busiest->first);
    EXPECT_DOUBLE_EQ(layer.largest_share, busiest->second / 64.0);
  }
}

TEST(SanityCheck, WithLittleRoomTheTokensComeInPieces) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"),
                                  {{"memory.dynamic", "60KiB"}, {"steps.max_rows", "8"}});
  ASSERT_NE(engine, nullptr);
  EXPECT_LT(engine->plan().longest_request(), 64U);
  const auto report = check_sanity(*engine);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_TRUE(report->status.is_ok()) << report->status.to_string();
}

// A golden's checkpoint with bytes of some tensors changed, converted: every checksum is right.
class Damaged {
 public:
  using Change = std::function<void(const std::string& tensor, std::span<char> bytes)>;
  explicit Damaged(const Change& change)
      : folder_(fs::temp_directory_path() / ("colibri-sanity-" + std::to_string(::getpid()))) {
    static int count = 0;
    folder_ /= "damaged-" + std::to_string(++count);
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(golden_folder(kModel)))
      fs::copy_file(entry.path(), folder_ / entry.path().filename());
    const auto file = SafetensorsFile::open(folder_ / "model.safetensors");
    EXPECT_TRUE(file.is_ok()) << file.status().to_string();
    std::fstream bytes(folder_ / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    for (const TensorInfo& tensor : file->tensors()) {
      std::string content(tensor.bytes, '\0');
      bytes.seekg(static_cast<std::streamoff>(tensor.offset));
      bytes.read(content.data(), static_cast<std::streamsize>(content.size()));
      change(tensor.name, content);
      bytes.seekp(static_cast<std::streamoff>(tensor.offset));
      bytes.write(content.data(), static_cast<std::streamsize>(content.size()));
    }
    EXPECT_TRUE(bytes.good());
  }
  ~Damaged() {
    std::error_code ignored;
    fs::remove_all(folder_.parent_path(), ignored);
  }
  // What the check says of it with the pipeline.
  Status status(const std::string& yaml) const {
    const auto engine = open(container_of(folder_, "config.json", "auto"), yaml);
    if (engine == nullptr) return {ErrorCode::internal, "the model was not opened"};
    const auto report = check_sanity(*engine);
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report ? report->status : report.status();
  }

 private:
  fs::path folder_;
};

TEST(SanityCheck, ALostRouterIsFound) {
  const Damaged model([](const std::string& tensor, std::span<char> bytes) {
    if (tensor == "model.layers.1.mlp.gate.weight") std::fill(bytes.begin(), bytes.end(), '\0');
  });
  for (const std::string& yaml : pipelines()) {
    const Status status = model.status(yaml);
    EXPECT_EQ(status.code(), ErrorCode::corrupt);
    EXPECT_TRUE(status.to_string().starts_with("a router picks the same experts for all tokens: layer 1, "))
        << status.to_string();
    EXPECT_NE(status.to_string().find("`colibri verify`, and convert the model again"), std::string::npos);
  }
}

// All embeddings have a large first value, which only expert 0 looks at: all tokens pick it, the rest of
// their picks differ.
TEST(SanityCheck, AnExpertThatIsAlwaysPickedIsFound) {
  const std::size_t hidden =
      open(golden_container(kModel, "config.json", "auto"), pipelines()[1])->spec().hidden_size;
  const Damaged model([&](const std::string& tensor, std::span<char> bytes) {
    const auto first_of_row = [&](std::size_t row, std::uint16_t bf16) {
      std::memcpy(bytes.data() + 2 * row * hidden, &bf16, 2);
    };
    const std::size_t rows = bytes.size() / 2 / hidden;
    for (std::size_t row = 0; row < rows && tensor == "model.embed_tokens.weight"; ++row)
      first_of_row(row, 0x4080);  // 4
    for (std::size_t row = 0; row < rows && tensor == "model.layers.0.mlp.gate.weight"; ++row)
      first_of_row(row, row == 0 ? 0x4220 : 0);  // 40
  });
  for (const std::string& yaml : pipelines()) {
    EXPECT_TRUE(
        model.status(yaml).to_string().starts_with("a router picks one expert for nearly all tokens: layer "
                                                   "0, expert 0 for 100 % of them, expected at most 90 %"))
        << model.status(yaml).to_string();
  }
}

// No NaN: convert refuses those. Numbers whose products are too large for f32.
TEST(SanityCheck, ExpertsThatOverflowAreFound) {
  const Damaged model([](const std::string& tensor, std::span<char> bytes) {
    if (!tensor.starts_with("model.layers.1.mlp.experts.")) return;
    const std::uint16_t huge = 0x7e80;  // 8.5e37 as bf16
    for (std::size_t i = 0; i < bytes.size(); i += sizeof huge)
      std::memcpy(bytes.data() + i, &huge, sizeof huge);
  });
  for (const std::string& yaml : pipelines()) {
    const Status status = model.status(yaml);
    EXPECT_EQ(status.code(), ErrorCode::corrupt);
    EXPECT_TRUE(status.to_string().starts_with(
        "the model computes values that are not finite: moe_output 1 of token "))
        << status.to_string();
  }
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// As a wrong converter would have left it: no number in the embedding, and every checksum right.
TEST(SanityCheck, AnEmbeddingThatHoldsNoNumbersIsFound) {
  const fs::path intact = golden_container(kModel, "config.json", "auto");
  const fs::path damaged = intact.parent_path() / "embedding-of-no-numbers";
  fs::remove_all(damaged);  // of an earlier round
  fs::copy(intact, damaged, fs::copy_options::recursive);
  std::string bytes = bytes_of(damaged / "model.bin");
  const auto container = Container::open(intact);
  ASSERT_TRUE(container.is_ok());
  const auto tensors = (*container)->dense_tensors();
  const DenseTensor& embedding = *(*container)->find("embedding.weight");
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(kPageBytes + embedding.offset), embedding.bytes,
              '\xff');
  // The hashes of the tensors end the table, before its own (io/container/container_format.hpp).
  const std::size_t index = static_cast<std::size_t>(&embedding - tensors.data());
  const auto hash = [&bytes](std::size_t begin, std::size_t end, std::size_t to) {
    const std::uint64_t sum = xxh3_64(std::as_bytes(std::span(bytes)).subspan(begin, end - begin));
    std::memcpy(bytes.data() + to, &sum, sizeof sum);
  };
  std::uint64_t table = 0;
  std::memcpy(&table, bytes.data() + 56, sizeof table);
  const std::size_t begin = kPageBytes + embedding.offset;
  hash(begin, begin + embedding.bytes, bytes.size() - 8 - 8 * (tensors.size() - index));
  hash(table, bytes.size() - 8, bytes.size() - 8);
  std::ofstream(damaged / "model.bin", std::ios::binary) << bytes;
  for (const std::string& yaml : pipelines()) {
    const auto engine = open(damaged, yaml);
    ASSERT_NE(engine, nullptr);
    const auto report = check_sanity(*engine);
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    const std::string first = std::to_string(engine->spec().vocab_size / 128);
    EXPECT_TRUE(report->status.to_string().starts_with(
        "the model computes values that are not finite: hidden_states 0 of token " + first + ";"))
        << report->status.to_string();
  }
}

TEST(SanityCheck, NeedsTheEngineForItself) {
  const auto engine = open(golden_container(kModel, "config.json", "auto"), pipelines()[1]);
  ASSERT_NE(engine, nullptr);
  const auto session = BlockSession::start(*engine);
  ASSERT_TRUE(session.is_ok());
  EXPECT_NE(check_sanity(*engine).status().to_string().find("a job runs on this engine already"),
            std::string::npos);
}

TEST(EmbeddingRows, AreThoseOfTheTokens) {
  const auto engine = open(golden_container(kModel, "config.json", "auto"), pipelines()[1]);
  ASSERT_NE(engine, nullptr);
  const auto file = SafetensorsFile::open(golden_folder(kModel) / "model.safetensors");
  const std::vector<float> all = file->read_f32("model.embed_tokens.weight").value();
  const std::size_t hidden = engine->spec().hidden_size;
  const std::vector<std::int32_t> tokens = {5, 0, static_cast<std::int32_t>(engine->spec().vocab_size) - 1};
  std::vector<float> rows(tokens.size() * hidden);
  ASSERT_TRUE(engine->embedding_rows(tokens, rows).is_ok());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::size_t column = 0; column < hidden; ++column)
      ASSERT_EQ(rows[i * hidden + column], all[static_cast<std::size_t>(tokens[i]) * hidden + column]);
  }
  EXPECT_EQ(engine->embedding_rows(tokens, std::span(rows).first(hidden)).code(), ErrorCode::invalid_input);
  for (const std::int32_t wrong : {-1, static_cast<std::int32_t>(engine->spec().vocab_size)}) {
    EXPECT_EQ(engine->embedding_rows(std::vector{wrong}, std::span(rows).first(hidden)).code(),
              ErrorCode::invalid_input);
  }
}

}  // namespace
}  // namespace colibri::testing
