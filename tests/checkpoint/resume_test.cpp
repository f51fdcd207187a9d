// Interrupted conversions: killed or cancelled at any point, taken up again, equal to the bit; and what
// may lie in the output folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>

#include "io/checkpoint/convert.hpp"
#include "io/container/container.hpp"
#include "tests/checkpoint/make_checkpoint.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = entry.is_regular_file() ? test::read_file(entry.path()) : "folder";
  }
  return files;
}

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // About 100 records of several chunks, and a tokenizer to copy.
    ASSERT_TRUE(test::write_synthetic_checkpoint(
        checkpoint(),
        {.hidden_size = 128, .intermediate_size = 96, .num_layers = 6, .num_experts = 16, .num_shards = 3}));
    test::write_file(checkpoint() / "tokenizer.json", "{\"model\": {}}");
    ASSERT_TRUE(run(folder_ / "reference"));
    reference_ = files_of(folder_ / "reference");
    ASSERT_EQ(reference_.size(), 5u);
  }
  fs::path checkpoint() const { return folder_ / "checkpoint"; }
  fs::path out() const { return folder_ / "out"; }
  ConvertOptions options() const {
    ConvertOptions options;
    options.chunk_bytes = 4096;
    return options;
  }
  Result<ConvertReport> run(const fs::path& to) { return convert_checkpoint(checkpoint(), to, options()); }
  // Child process: exit status 0 when it finished.
  pid_t start(const std::function<void(ConvertOptions&)>& adapt = {}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ConvertOptions changed = options();
      if (adapt) adapt(changed);
      ::_exit(convert_checkpoint(checkpoint(), out(), changed) ? 0 : 1);
    }
    return child;
  }
  static bool finished(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(!WIFEXITED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> reference_;
};

TEST_F(ResumeTest, KilledAtAnyStepTheFilesAreTheSame) {
  std::mt19937 random(7);
  for (int round = 0; round < testing::scaled(6, 2); ++round) {
    int runs = 0;
    for (bool done = false; !done; ++runs) {
      ASSERT_LT(runs, 100);
      // Steps of a run that kept much are passed quickly, so the child dies later and later.
      int steps = static_cast<int>(random() % 250) + 40;
      done = finished(start([&steps](ConvertOptions& options) {
        options.progress = [&steps](std::uint64_t, std::uint64_t) {
          if (--steps == 0) ::raise(SIGKILL);
        };
      }));
      if (!done) {
        EXPECT_FALSE(fs::exists(out() / "model_spec.json"));
        EXPECT_FALSE(Container::open(out()));
      }
    }
    EXPECT_GT(runs, 1);
    EXPECT_EQ(files_of(out()), reference_);
    fs::remove_all(out());
  }
}

TEST_F(ResumeTest, KilledAtAnyTimeTheFilesAreTheSame) {
  std::mt19937 random(11);
  int kills = 0;
  for (int round = 0; round < testing::scaled(12, 3); ++round) {
    for (bool done = false; !done;) {
      const pid_t child = start();
      ::usleep(random() % 60'000);
      ::kill(child, SIGKILL);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      kills += WIFSIGNALED(status);
      // A container that is complete when its converter dies needs no other run; what is left of the
      // state is removed by one.
      if (fs::exists(out() / "model_spec.json")) {
        EXPECT_TRUE(verify_container(out(), {}));
        if (fs::exists(out() / "convert.partial/identity")) {
          EXPECT_TRUE(run(out()));
        }
        fs::remove_all(out() / "convert.partial");
        done = true;
      } else if (WIFEXITED(status)) {
        FAIL() << "a run ended without a model";
      } else if (random() % 3 == 0) {
        const auto report = run(out());
        ASSERT_TRUE(report) << report.status().to_string();
        done = true;
      }
    }
    EXPECT_EQ(files_of(out()), reference_);
    fs::remove_all(out());
  }
  EXPECT_GT(kills, 0);
}

TEST_F(ResumeTest, DamageOfAFinishedPartIsRepaired) {
  ConvertOptions stopped = options();
  int steps = 100;
  stopped.cancelled = [&steps] { return --steps == 0; };
  const auto cancelled = convert_checkpoint(checkpoint(), out(), stopped);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.status().code(), ErrorCode::cancelled);
  const fs::path partial = out() / "convert.partial";
  for (const char* name : {"model.bin", "experts.bin"}) {
    std::string bytes = test::read_file(partial / name);
    for (std::size_t i = 4096; i < bytes.size(); i += 5000) bytes[i] ^= 1;
    test::write_file(partial / name, bytes);
  }
  const auto report = run(out());
  ASSERT_TRUE(report) << report.status().to_string();
  EXPECT_TRUE(report->resumed);
  EXPECT_EQ(files_of(out()), reference_);
}

TEST_F(ResumeTest, PublishingContinues) {
  // A state as it is between two of the last renames.
  const fs::path partial = out() / "convert.partial";
  ConvertOptions stopped = options();
  stopped.cancelled = [] { return true; };
  ASSERT_FALSE(convert_checkpoint(checkpoint(), out(), stopped));
  test::write_file(partial / "complete",
                   "manifest.json\nmodel_spec.json\nmodel.bin\nexperts.bin\ntokenizer.json\n");
  for (const auto& [name, content] : reference_) {
    const bool moved = name == "manifest.json" || name == "model.bin";
    test::write_file((moved ? out() : partial) / name, content);
    if (moved) fs::remove(partial / name);
  }
  const auto report = run(out());
  ASSERT_TRUE(report) << report.status().to_string();
  EXPECT_TRUE(report->resumed);
  EXPECT_EQ(files_of(out()), reference_);
}

TEST_F(ResumeTest, AnotherCheckpointOrOtherOptionsAreNotMixed) {
  ConvertOptions stopped = options();
  stopped.cancelled = [] { return true; };
  ASSERT_FALSE(convert_checkpoint(checkpoint(), out(), stopped));
  ConvertOptions other = options();
  other.weights = "int8";
  const auto refused = convert_checkpoint(checkpoint(), out(), other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.status().to_string().find("other options"), std::string::npos)
      << refused.status().to_string();
  // The same names and sizes, but written anew.
  const fs::path shard = checkpoint() / "model-00001-of-00003.safetensors";
  fs::last_write_time(shard, fs::last_write_time(shard) + std::chrono::seconds(1));
  EXPECT_FALSE(run(out()));
  other.force = true;
  ASSERT_TRUE(convert_checkpoint(checkpoint(), out(), other));
  EXPECT_EQ((*Container::open(out()))->spec().weight_dtype, kernels::WeightFormat::int8_g64);
}

TEST_F(ResumeTest, OutputFoldersWithContent) {
  fs::create_directories(out());
  ASSERT_TRUE(run(out()));  // an empty folder is fine
  const auto again = run(out());
  ASSERT_FALSE(again);
  EXPECT_NE(again.status().to_string().find("holds a converted model"), std::string::npos);
  EXPECT_EQ(files_of(out()), reference_);

  test::write_file(out() / "notes.txt", "mine");
  test::write_file(out() / "generation_config.json", "{}");  // of the old container
  ConvertOptions forced = options();
  forced.force = true;
  forced.weights = "f32";
  ASSERT_TRUE(convert_checkpoint(checkpoint(), out(), forced));
  EXPECT_TRUE(verify_container(out(), {}));
  EXPECT_EQ(test::read_file(out() / "notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(out() / "generation_config.json"));
  EXPECT_EQ((*Container::open(out()))->spec().weight_dtype, kernels::WeightFormat::f32);

  fs::create_directories(folder_ / "full");
  test::write_file(folder_ / "full/b.txt", "");
  test::write_file(folder_ / "full/a.txt", "");
  const auto full = run(folder_ / "full");
  ASSERT_FALSE(full);
  EXPECT_NE(full.status().to_string().find("holds a.txt, b.txt"), std::string::npos)
      << full.status().to_string();
  EXPECT_EQ(files_of(folder_ / "full").size(), 2u);
  EXPECT_FALSE(run(folder_ / "full/a.txt"));
}

TEST_F(ResumeTest, AnOldModelStaysUntilTheNewOneIsComplete) {
  ASSERT_TRUE(run(out()));
  ConvertOptions forced = options();
  forced.force = true;
  forced.weights = "int8";
  int steps = 50;
  forced.cancelled = [&steps] { return --steps == 0; };
  ASSERT_FALSE(convert_checkpoint(checkpoint(), out(), forced));
  EXPECT_TRUE(verify_container(out(), {}));
  forced.cancelled = {};
  ASSERT_TRUE(convert_checkpoint(checkpoint(), out(), forced));
  EXPECT_TRUE(verify_container(out(), {}));
  EXPECT_EQ((*Container::open(out()))->spec().weight_dtype, kernels::WeightFormat::int8_g64);
}

TEST_F(ResumeTest, TheCheckpointItselfIsNoOutput) {
  const auto before = files_of(checkpoint());
  ConvertOptions forced = options();
  forced.force = true;
  for (const fs::path& same : {checkpoint(), checkpoint() / ".", folder_ / "reference/../checkpoint"}) {
    const auto report = convert_checkpoint(checkpoint(), same, forced);
    ASSERT_FALSE(report);
    EXPECT_NE(report.status().to_string().find("checkpoint itself"), std::string::npos);
  }
  fs::create_directory_symlink(checkpoint(), folder_ / "link");
  EXPECT_FALSE(convert_checkpoint(checkpoint(), folder_ / "link", forced));
  EXPECT_EQ(files_of(checkpoint()), before);
}

TEST_F(ResumeTest, TwoConversionsDoNotShareAFolder) {
  ConvertOptions outer = options();
  int steps = 20;
  std::string second;
  outer.progress = [&](std::uint64_t, std::uint64_t) {
    if (--steps == 0) second = run(out()).status().to_string();
  };
  ASSERT_TRUE(convert_checkpoint(checkpoint(), out(), outer));
  EXPECT_NE(second.find("another conversion"), std::string::npos) << second;
  EXPECT_EQ(files_of(out()), reference_);
}

TEST_F(ResumeTest, ReportsProgressToTheEnd) {
  ConvertOptions counted = options();
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  counted.progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done;
    total = all;
  };
  ASSERT_TRUE(convert_checkpoint(checkpoint(), out(), counted));
  EXPECT_GT(last, total / 100 * 95);
}

}  // namespace
}  // namespace colibri
