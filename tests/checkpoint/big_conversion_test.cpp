// A checkpoint of 4 GB (times COLIBRI_TEST_SCALE) converts in less than 1 GiB of memory: measured as
// VmHWM of a child process, and, where cgroups can be made, proven under a limit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "io/checkpoint/convert.hpp"
#include "io/container/container.hpp"
#include "tests/checkpoint/make_checkpoint.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr std::uint64_t kLimitBytes = 1ULL << 30;

// Shape of a Qwen3-30B layer with as many experts as make 4 GB in four layers.
test::SyntheticCheckpoint big_shape() {
  test::SyntheticCheckpoint shape{.hidden_size = 2048, .intermediate_size = 768, .num_layers = 4};
  const double expert_bytes = 3.0 * shape.hidden_size * shape.intermediate_size * 2;
  shape.num_experts =
      static_cast<std::uint32_t>(std::max(4.0, std::ceil(4e9 * testing::test_scale() / (4 * expert_bytes))));
  shape.num_heads = 32;
  shape.num_kv_heads = 4;
  shape.head_dim = 128;
  shape.vocab_size = 32000;
  shape.num_shards = 3;
  return shape;
}

std::uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return ~0ULL;
}

// A memory cgroup (v1 or v2) with the limit; none, with a reason, when it cannot be made.
class LimitedGroup {
 public:
  LimitedGroup() {
    const std::string name = "colibri_test_" + std::to_string(::getpid());
    const struct {
      fs::path root;
      const char* limit;
    } versions[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}};
    for (const auto& version : versions) {
      std::error_code error;
      if (!fs::exists(version.root, error) || !fs::create_directory(version.root / name, error)) continue;
      path_ = version.root / name;
      if (fs::exists(path_ / version.limit, error) && put(version.limit, kLimitBytes)) return;
      ::rmdir(path_.c_str());
      path_.clear();
    }
  }
  ~LimitedGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  bool made() const { return !path_.empty(); }
  bool enter() const { return put("cgroup.procs", static_cast<std::uint64_t>(::getpid())); }

 private:
  bool put(const char* file, std::uint64_t value) const {
    std::ofstream stream(path_ / file);
    stream << value << std::flush;
    return stream.good();
  }
  fs::path path_;
};

class BigConversion : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder();
    ASSERT_TRUE(test::write_synthetic_checkpoint(*folder_ / "checkpoint", big_shape()));
  }
  static void TearDownTestSuite() { delete folder_; }

  // Converts in a child process that `prepare` has been called in. Returns the child's peak memory.
  std::optional<std::uint64_t> convert_in_child(const std::string& weights,
                                                const std::function<bool()>& prepare) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (!prepare()) ::_exit(2);
      ConvertOptions options;
      options.weights = weights;
      if (!convert_checkpoint(*folder_ / "checkpoint", *folder_ / "out", options)) ::_exit(1);
      const std::uint64_t peak = peak_bytes();
      ::_exit(::write(ends[1], &peak, sizeof(peak)) == sizeof(peak) ? 0 : 3);
    }
    ::close(ends[1]);
    std::uint64_t peak = 0;
    const bool told = ::read(ends[0], &peak, sizeof(peak)) == sizeof(peak);
    ::close(ends[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return told ? std::optional(peak) : std::nullopt;
  }
  void TearDown() override { fs::remove_all(*folder_ / "out"); }

  static TemporaryFolder* folder_;
};

TemporaryFolder* BigConversion::folder_ = nullptr;

TEST_F(BigConversion, PeakMemoryIsBelowOneGiB) {
  const auto peak = convert_in_child("auto", [] { return true; });
  ASSERT_TRUE(peak);
  EXPECT_LT(*peak, kLimitBytes);
  RecordProperty("peak_bytes", std::to_string(*peak));
  const auto container = Container::open(*folder_ / "out");
  ASSERT_TRUE(container) << container.status().to_string();
  EXPECT_GT((*container)->expert_bytes(),
            static_cast<std::uint64_t>(3.9e9 * std::min(1.0, testing::test_scale())));
}

TEST_F(BigConversion, WorksUnderAMemoryLimit) {
  const LimitedGroup group;
  if (!group.made()) GTEST_SKIP() << "no memory cgroup can be made here: not root, or no memory controller";
  const auto peak = convert_in_child("int8", [&group] { return group.enter(); });
  ASSERT_TRUE(peak);
  EXPECT_LT(*peak, kLimitBytes);
  EXPECT_TRUE(Container::open(*folder_ / "out"));
}

}  // namespace
}  // namespace colibri
