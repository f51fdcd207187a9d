// Copies of containers: equal to the byte, however often they were interrupted; damage and refusals.
#include "io/container/copy_container.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
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

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Contents by name, behind links too; a link shows by its mark.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename()] = entry.is_regular_file() ? test::read_file(entry.path()) : "folder";
    EXPECT_FALSE(entry.is_symlink() && folder.filename() == "copy") << entry.path();
  }
  return files;
}

class CopyContainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(test::write_synthetic_checkpoint(
        folder_ / "checkpoint",
        {.hidden_size = 128, .intermediate_size = 96, .num_layers = 4, .num_experts = 8}));
    test::write_file(folder_ / "checkpoint" / "tokenizer.json", "{\"model\": {}}");
    convert({});
  }
  void convert(const std::vector<fs::path>& stripe) {
    ConvertOptions options;
    options.chunk_bytes = 4096;
    options.force = true;
    options.stripe = stripe;
    const auto report = convert_checkpoint(folder_ / "checkpoint", model(), options);
    ASSERT_TRUE(report) << report.status().to_string();
  }
  fs::path model() const { return folder_ / "model"; }
  fs::path copy() const { return folder_ / "copy"; }
  fs::path partial(const std::string& name) const { return copy() / "stage.partial" / name; }
  std::string error(const CopyOptions& options = {}) {
    const auto report = copy_container(model(), copy(), options);
    return report ? "" : report.status().to_string();
  }
  // Ends a copy after `bytes`.
  void interrupt_after(std::uint64_t bytes) {
    std::uint64_t done = 0;
    const auto report = copy_container(model(), copy(),
                                       {.progress = [&](std::uint64_t now, std::uint64_t) { done = now; },
                                        .cancelled = [&] { return done >= bytes; }});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.status().code(), ErrorCode::cancelled);
  }
  void flip(const fs::path& file, std::size_t offset) {
    std::string bytes = test::read_file(file);
    ASSERT_LT(offset, bytes.size());
    bytes[offset] ^= 1;
    test::write_file(file, bytes);
  }
  void expect_copied() {
    EXPECT_EQ(files_of(copy()), files_of(model()));
    EXPECT_TRUE(verify_container(copy(), {}));
    EXPECT_EQ((*Container::open(copy()))->digest(), (*Container::open(model()))->digest());
  }

  TemporaryFolder folder_;
};

TEST_F(CopyContainerTest, EveryFileIsEqual) {
  std::uint64_t last = 0, total = 0;
  const auto report =
      copy_container(model(), copy(), {.progress = [&](std::uint64_t done, std::uint64_t all) {
                       EXPECT_GT(done, last);
                       last = done;
                       total = all;
                     }});
  ASSERT_TRUE(report) << report.status().to_string();
  expect_copied();
  std::uint64_t bytes = 0;
  for (const auto& [name, content] : files_of(model())) bytes += name == "manifest.json" ? 0 : content.size();
  EXPECT_EQ(report->bytes, bytes);
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(total, bytes);
  EXPECT_EQ(report->kept_bytes, 0U);
  EXPECT_FALSE(report->was_there);
}

TEST_F(CopyContainerTest, PartsOnOtherDrivesBecomeFilesOfTheFolder) {
  fs::create_directory(folder_ / "a");
  fs::create_directory(folder_ / "b");
  convert({folder_ / "a", folder_ / "b"});
  ASSERT_TRUE(fs::is_symlink(model() / "experts.1.bin"));
  ASSERT_EQ(error(), "");
  expect_copied();
  fs::remove_all(folder_ / "a");
  EXPECT_TRUE(Container::open(copy()));
}

TEST_F(CopyContainerTest, AnInterruptedCopyIsNoModelAndIsTakenUp) {
  const std::uint64_t bytes = fs::file_size(model() / "experts.bin");
  for (std::uint64_t part = 1; part < 6; ++part) {
    fs::remove_all(copy());
    interrupt_after(bytes * part / 6);
    const auto opened = Container::open(copy());
    ASSERT_FALSE(opened);
    EXPECT_TRUE(contains(opened.status().to_string(), "run colibri stage")) << opened.status().to_string();
    const auto report = copy_container(model(), copy(), {});
    ASSERT_TRUE(report) << report.status().to_string();
    EXPECT_GE(report->kept_bytes, bytes * part / 6 / 2);
    expect_copied();
  }
}

TEST_F(CopyContainerTest, WhatAFormerRunLeftIsCompared) {
  interrupt_after(fs::file_size(model() / "model.bin") + fs::file_size(model() / "experts.bin") * 3 / 4);
  flip(partial("experts.bin"), 4096 + 5000);
  flip(partial("experts.bin"), 17);  // of the header, which has no checksum of its own
  flip(partial("model.bin"), 5000);
  const std::uint64_t length = fs::file_size(partial("experts.bin"));
  fs::resize_file(partial("experts.bin"), length - 1234);
  std::vector<std::string> lines;
  const auto report =
      copy_container(model(), copy(), {.log = [&](std::string line) { lines.push_back(line); }});
  ASSERT_TRUE(report) << report.status().to_string();
  expect_copied();
  EXPECT_GE(report->kept_bytes, length / 2);
  EXPECT_LE(report->kept_bytes, fs::file_size(model() / "model.bin") + length - 2 * 4096);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(contains(lines[0], "continuing the unfinished copy")) << lines[0];
}

// A longer file than the model's, of ones: nothing of it may stay.
TEST_F(CopyContainerTest, LongerRemainsAreCutOff) {
  interrupt_after(1);
  test::write_file(partial("experts.bin"), std::string(fs::file_size(model() / "experts.bin") + 9999, '\1'));
  ASSERT_EQ(error(), "");
  expect_copied();
}

TEST_F(CopyContainerTest, KilledAtAnyMomentItIsTakenUp) {
  std::mt19937 random(3);
  for (int round = 0; round < testing::scaled(4, 1); ++round) {
    fs::remove_all(copy());
    int runs = 0;
    for (bool finished = false; !finished; ++runs) {
      ASSERT_LT(runs, 200);
      const std::uint64_t most = 1 + random() % 40;  // pieces until the kill
      const pid_t child = ::fork();
      if (child == 0) {
        std::uint64_t pieces = 0;
        const auto report =
            copy_container(model(), copy(), {.progress = [&](std::uint64_t, std::uint64_t) {
                             if (runs < 20 && ++pieces > most * static_cast<std::uint64_t>(runs + 1))
                               ::raise(SIGKILL);
                           }});
        ::_exit(report ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      if (WIFEXITED(status)) {
        ASSERT_EQ(WEXITSTATUS(status), 0);
        finished = true;
      }
    }
    EXPECT_GT(runs, 1);
    expect_copied();
  }
}

// Between the moves of files into the folder.
TEST_F(CopyContainerTest, TheLastMovesAreTakenUp) {
  ASSERT_EQ(error(), "");
  const std::map<std::string, std::string> whole = files_of(copy());
  for (const auto& [moved, content] : whole) {
    if (moved == "model_spec.json") continue;
    fs::remove_all(copy());
    interrupt_after(1);
    const std::string identity = test::read_file(partial("identity"));
    std::string list;
    for (const auto& [name, bytes] : whole) {
      list += name + "\n";
      test::write_file(name == moved ? copy() / name : partial(name), bytes);
    }
    test::write_file(partial("complete"), list);
    ASSERT_EQ(test::read_file(partial("identity")), identity);
    EXPECT_FALSE(Container::open(copy()));
    ASSERT_EQ(error(), "") << moved;
    expect_copied();
  }
}

TEST_F(CopyContainerTest, DamageOfTheModelIsNamedAndNothingIsPublished) {
  const std::size_t second_record = (*Container::open(model()))->record(0, 1).offset;
  flip(model() / "experts.bin", second_record + 4096 + 7);
  std::string text = error();
  for (const std::string& word :
       {std::string("experts.bin"), std::string("layer 0, expert 1"), std::to_string(second_record + 4096)}) {
    EXPECT_TRUE(contains(text, word)) << word << " not in: " << text;
  }
  EXPECT_FALSE(fs::exists(copy() / "model_spec.json"));
  flip(model() / "experts.bin", second_record + 4096 + 7);
  ASSERT_EQ(error(), "");  // goes on
  expect_copied();
}

TEST_F(CopyContainerTest, DamageOutsideOfCheckedBytesShowsInTheFile) {
  flip(model() / "tokenizer.json", 3);
  EXPECT_TRUE(contains(error(), "wrong SHA-256")) << error();
  EXPECT_TRUE(contains(error(), "tokenizer.json")) << error();
  flip(model() / "tokenizer.json", 3);
  test::write_file(model() / "tokenizer.json", "{\"model\": {} }");
  EXPECT_TRUE(contains(error(), "wrong size")) << error();
}

TEST_F(CopyContainerTest, ADriveThatIsFullInTheMiddleLosesNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto report = copy_container(model(), copy(), {});
    ::_exit(!report && report.status().code() == ErrorCode::io ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto report = copy_container(model(), copy(), {});
  ASSERT_TRUE(report) << report.status().to_string();
  EXPECT_GT(report->kept_bytes, 100'000U);
  expect_copied();
}

TEST_F(CopyContainerTest, WhatIsThereAlreadyIsLeft) {
  ASSERT_EQ(error(), "");
  const auto before = fs::last_write_time(copy() / "experts.bin");
  const auto report = copy_container(model(), copy(), {});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->was_there);
  EXPECT_EQ(fs::last_write_time(copy() / "experts.bin"), before);
  const auto forced = copy_container(model(), copy(), {.force = true});
  ASSERT_TRUE(forced) << forced.status().to_string();
  EXPECT_FALSE(forced->was_there);
  expect_copied();
}

TEST_F(CopyContainerTest, OtherContentIsLeftUnlessForced) {
  fs::create_directory(copy());
  test::write_file(copy() / "notes.txt", "mine");
  EXPECT_TRUE(contains(error(), "notes.txt")) << error();
  EXPECT_FALSE(fs::exists(copy() / "stage.partial"));
  ASSERT_EQ(error({.force = true}), "");
  EXPECT_EQ(test::read_file(copy() / "notes.txt"), "mine");
  EXPECT_TRUE(verify_container(copy(), {}));
}

TEST_F(CopyContainerTest, ACopyOfAnotherModelIsNotContinued) {
  interrupt_after(1);
  ConvertOptions options;
  options.force = true;
  options.weights = "int8";
  ASSERT_TRUE(convert_checkpoint(folder_ / "checkpoint", model(), options));
  EXPECT_TRUE(contains(error(), "unfinished copy of another model")) << error();
  ASSERT_EQ(error({.force = true}), "");
  expect_copied();
}

TEST_F(CopyContainerTest, RefusesItselfAndWhatIsNoModel) {
  for (const fs::path& folder : {model(), model() / "copy", model() / ".", folder_ / "x" / ".." / "model"}) {
    const auto report = copy_container(model(), folder, {.force = true});
    ASSERT_FALSE(report) << folder;
    EXPECT_TRUE(contains(report.status().to_string(), "into itself")) << report.status().to_string();
  }
  EXPECT_FALSE(copy_container(folder_ / "checkpoint", copy(), {}));
  EXPECT_FALSE(fs::exists(copy()));
}

}  // namespace
}  // namespace colibri
