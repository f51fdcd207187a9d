// Installs this build into an empty folder, builds configs/examples/host_stage against it with
// nothing but find_package, and runs it: a stage kind written outside the tree works from YAML.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

std::string project_file(const std::string& name) {
  return (fs::path(COLIBRI_TEST_DATA).parent_path() / name).string();
}

// The folder that the package is installed into, and the outside project built against it; once for all
// tests.
class Install : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    installed_ = run({COLIBRI_CMAKE, "--install", COLIBRI_BUILD, "--prefix", prefix()}) &&
                 run({COLIBRI_CMAKE, "-S", project_file("configs/examples/host_stage"), "-B", build(),
                      "-DCMAKE_PREFIX_PATH=" + prefix(), "-DCMAKE_CXX_COMPILER=" COLIBRI_CXX,
                      "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -Wno-missing-field-initializers"}) &&
                 run({COLIBRI_CMAKE, "--build", build()});
  }
  static void TearDownTestSuite() { folder_.reset(); }
  void SetUp() override {
    ASSERT_TRUE(installed_) << "the package could not be installed and used, see above";
  }

  static std::string prefix() { return folder_->file("prefix"); }
  static std::string build() { return folder_->file("build"); }

  static bool run(const std::vector<std::string>& command) {
    RunOptions options;
    options.timeout = std::chrono::minutes(5);
    const RunResult result = run_program(command, options);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    return result.status == 0;
  }

  static RunResult run_host(const std::string& pipeline) {
    return run_program({build() + "/host_stage", demo_model(), pipeline});
  }

  static std::unique_ptr<TemporaryFolder> folder_;
  static bool installed_;
};
std::unique_ptr<TemporaryFolder> Install::folder_;
bool Install::installed_ = false;

TEST_F(Install, HostStageCountsPicksAndChangesNothing) {
  const RunResult with_stage = run_host(project_file("configs/examples/host_stage/pipeline.yaml"));
  const RunResult without = run_host(project_file("configs/batch.yaml"));
  ASSERT_EQ(with_stage.status, 0) << with_stage.err;
  ASSERT_EQ(without.status, 0) << without.err;
  EXPECT_FALSE(without.out.empty());
  EXPECT_EQ(with_stage.out, without.out);
  // The demo model has 6 layers with experts, and shows 4 experts of each.
  EXPECT_TRUE(contains(with_stage.err, "layer 0:  expert ")) << with_stage.err;
  EXPECT_TRUE(contains(with_stage.err, " picks\n")) << with_stage.err;
  EXPECT_FALSE(contains(without.err, "layer 0:"));
}

TEST_F(Install, FilesAreCheckedWithTheHostsKinds) {
  const std::string file = folder_->file("wrong.yaml");
  std::string yaml = read_file(project_file("configs/examples/host_stage/pipeline.yaml"));
  yaml.replace(yaml.find("top: 4"), 6, "top: 99");
  write_file(file, yaml);
  const RunResult result = run_host(file);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "stages.usage.top: '99' is out of range")) << result.err;
  // The program knows the built-in kinds only.
  const RunResult check = run_program({prefix() + "/bin/colibri", "check", file});
  EXPECT_TRUE(contains(check.err, "expert_usage")) << check.err;
  EXPECT_EQ(check.status, 1);
}

TEST_F(Install, InternalHeadersLieBelowColibri) {
  for (const auto& entry : fs::directory_iterator(prefix() + "/include")) {
    EXPECT_EQ(entry.path().filename(), "colibri");
  }
  for (const auto& entry : fs::recursive_directory_iterator(prefix() + "/include")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_FALSE(contains(read_file(entry.path().string()), "#include \"")) << entry.path();
  }
}

}  // namespace
}  // namespace colibri::test
