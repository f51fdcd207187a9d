// Conversion with the experts striped over directories: interrupted, forced, and what it must not overwrite.
#include <gtest/gtest.h>
#include <signal.h>
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

class StripedConversionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(test::write_synthetic_checkpoint(
        checkpoint(), {.hidden_size = 128, .intermediate_size = 96, .num_layers = 4, .num_experts = 16}));
    for (const char* drive : {"a", "b", "c"}) fs::create_directory(folder_ / drive);
  }
  fs::path checkpoint() const { return folder_ / "checkpoint"; }
  fs::path out() const { return folder_ / "out"; }
  ConvertOptions options(const std::vector<std::string>& drives = {"a", "b"}) const {
    ConvertOptions options;
    options.chunk_bytes = 4096;
    for (const std::string& drive : drives) options.stripe.push_back(folder_ / drive);
    return options;
  }
  std::string run(const ConvertOptions& options) const {
    const auto report = convert_checkpoint(checkpoint(), out(), options);
    return report ? "" : report.status().to_string();
  }
  // All files of the model, and what its links lead to; links as texts.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(out())) {
      const std::string name = entry.path().filename();
      if (entry.is_symlink()) files["link " + name] = fs::read_symlink(entry.path());
      files[name] = entry.is_regular_file() ? test::read_file(entry.path()) : "folder";
    }
    return files;
  }
  std::vector<std::string> names_in(const std::string& drive) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / drive))
      names.push_back(entry.path().filename());
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(StripedConversionTest, KilledAtAnyStepTheFilesAreTheSame) {
  ASSERT_EQ(run(options()), "");
  const auto reference = files();
  ASSERT_EQ(reference.size(), 4U + 4U);
  fs::remove_all(out());
  for (const char* drive : {"a", "b"}) fs::remove_all(folder_ / drive), fs::create_directory(folder_ / drive);

  std::mt19937 random(5);
  for (int round = 0; round < testing::scaled(4, 1); ++round) {
    int runs = 0;
    for (bool done = false; !done; ++runs) {
      ASSERT_LT(runs, 100);
      int steps = static_cast<int>(random() % 120) + 20;
      const pid_t child = ::fork();
      if (child == 0) {
        ConvertOptions changed = options();
        changed.progress = [&steps](std::uint64_t, std::uint64_t) {
          if (--steps == 0) ::raise(SIGKILL);
        };
        ::_exit(convert_checkpoint(checkpoint(), out(), changed) ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      done = WIFEXITED(status);
      ASSERT_TRUE(!done || WEXITSTATUS(status) == 0);
      if (!done) {
        EXPECT_FALSE(Container::open(out()));
        EXPECT_EQ(names_in("a"),
                  std::vector<std::string>{fs::path(reference.at("link experts.0.bin")).filename().string() +
                                           ".partial"});
      }
    }
    EXPECT_GT(runs, 1);
    EXPECT_EQ(files(), reference);
    EXPECT_EQ(names_in("a").size(), 1U);
    EXPECT_EQ(names_in("b").size(), 1U);
    EXPECT_TRUE(verify_container(out(), {}));
    fs::remove_all(out());
    for (const char* drive : {"a", "b"})
      fs::remove_all(folder_ / drive), fs::create_directory(folder_ / drive);
  }
}

// States as they are between the moves at the end: a part has its final name, but no link yet.
TEST_F(StripedConversionTest, PublishingContinues) {
  ASSERT_EQ(run(options()), "");
  const auto reference = files();
  const fs::path partial = out() / "convert.partial";
  for (const bool part_moved : {false, true}) {
    ConvertOptions stopped = options();
    stopped.force = true;
    stopped.cancelled = [] { return true; };
    ASSERT_NE(run(stopped), "");
    std::string names;
    for (const auto& [name, content] : reference) {
      if (name.starts_with("link ")) continue;
      names += name + "\n";
      const fs::path link = partial / name;
      if (!fs::is_symlink(link)) {
        test::write_file(link, content);
        continue;
      }
      fs::path target = fs::read_symlink(link);
      if (part_moved && name == "experts.0.bin") {
        fs::remove(target);
        target.replace_extension();
      }
      test::write_file(target, content);
    }
    test::write_file(partial / "complete", names);
    for (const auto& [name, content] : reference) {
      if (!name.starts_with("link ")) fs::remove(out() / name);
    }
    ASSERT_EQ(run(options()), "");
    EXPECT_EQ(files(), reference);
    EXPECT_TRUE(verify_container(out(), {}));
  }
}

TEST_F(StripedConversionTest, OverwritesNoFileSilently) {
  ASSERT_EQ(run(options()), "");
  const fs::path part = fs::read_symlink(out() / "experts.1.bin");
  // The folder went, its parts stayed.
  fs::remove_all(out());
  const std::string refused = run(options());
  EXPECT_NE(refused.find("a file lies where a part of the experts goes: "), std::string::npos) << refused;
  EXPECT_NE(refused.find("--force"), std::string::npos) << refused;
  EXPECT_FALSE(fs::exists(out()));
  ConvertOptions forced = options();
  forced.force = true;
  test::write_file(part, "mine");
  ASSERT_EQ(run(forced), "");
  EXPECT_TRUE(verify_container(out(), {}));

  // Models of one name in different places do not meet.
  fs::create_directory(folder_ / "elsewhere");
  const auto other = convert_checkpoint(checkpoint(), folder_ / "elsewhere/out", options());
  ASSERT_TRUE(other) << other.status().to_string();
  EXPECT_EQ(names_in("a").size(), 2U);
  EXPECT_TRUE(verify_container(out(), {}));
}

TEST_F(StripedConversionTest, TheOldModelStaysUntilTheNewOneIsComplete) {
  ASSERT_EQ(run(options()), "");
  ConvertOptions forced = options();
  forced.force = true;
  forced.weights = "int8";
  int steps = 50;
  forced.cancelled = [&steps] { return --steps == 0; };
  ASSERT_NE(run(forced), "");
  EXPECT_TRUE(verify_container(out(), {}));
  forced.cancelled = {};
  ASSERT_EQ(run(forced), "");
  EXPECT_TRUE(verify_container(out(), {}));
  EXPECT_EQ((*Container::open(out()))->spec().weight_dtype, kernels::WeightFormat::int8_g64);
  EXPECT_EQ(names_in("a").size(), 1U);

  // To other directories, then to one file: parts left behind are named, links go.
  std::vector<std::string> lines;
  forced.stripe = {folder_ / "c", folder_ / "b"};
  forced.log = [&lines](const std::string& line) { lines.push_back(line); };
  ASSERT_EQ(run(forced), "");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find((fs::canonical(folder_ / "a") / names_in("a").at(0)).string()), std::string::npos)
      << lines[0];
  lines.clear();
  forced.stripe.clear();
  ASSERT_EQ(run(forced), "");
  EXPECT_EQ(lines.size(), 2U);
  EXPECT_FALSE(fs::is_symlink(fs::symlink_status(out() / "experts.0.bin")));
  EXPECT_TRUE(verify_container(out(), {}));
}

TEST_F(StripedConversionTest, OtherDirectoriesAreAnotherConversion) {
  ConvertOptions stopped = options();
  stopped.cancelled = [] { return true; };
  ASSERT_NE(run(stopped), "");
  EXPECT_NE(run(options({"a", "c"})).find("other options"), std::string::npos);
  ConvertOptions forced = options({"c", "b"});
  forced.force = true;
  ASSERT_EQ(run(forced), "");
  EXPECT_TRUE(names_in("a").empty());  // what was unfinished is gone
  EXPECT_TRUE(verify_container(out(), {}));
}

TEST_F(StripedConversionTest, RefusesDirectoriesBeforeAnythingIsWritten) {
  fs::create_directory_symlink(folder_ / "a", folder_ / "alias");
  test::write_file(folder_ / "file", "");
  const struct {
    std::vector<std::string> drives;
    const char* words;
  } cases[] = {
      {{"a"}, "too few directories to stripe the experts over: expected at least 2, found 1"},
      {{"a", "none"}, "directory for experts does not exist: "},
      {{"a", "file"}, "directory for experts does not exist: "},
      {{"a", "alias"}, "directory for experts is named twice: "},
      {std::vector<std::string>(17, "a"), "expected at most 16, found 17"},
  };
  for (const auto& one : cases) {
    const std::string message = run(options(one.drives));
    EXPECT_NE(message.find(one.words), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(out()));
    EXPECT_TRUE(names_in("a").empty());
  }
  fs::create_directory(out());
  EXPECT_NE(run(options({"a", "out"})).find("the model's own"), std::string::npos)
      << run(options({"a", "out"}));
}

}  // namespace
}  // namespace colibri
