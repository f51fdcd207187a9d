// What `cmake --install` leaves, and configs/examples/host_stage built against it with nothing
// but find_package: a stage kind written outside the tree works from YAML.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/demo_model.hpp"
#include "tests/install/install_tree.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

// The outside project, built once for all tests.
class HostStage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    built_ = InstallTree::get().build_project(
        project_file("configs/examples/host_stage"), "host_stage",
        {"-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -Wno-missing-field-initializers"});
  }
  void SetUp() override { ASSERT_TRUE(built_) << "the package could not be used, see above"; }

  static RunResult run_host(const std::string& pipeline) {
    return run_program({InstallTree::get().scratch("host_stage/host_stage"), demo_model(), pipeline});
  }

  static bool built_;
};
bool HostStage::built_ = false;

TEST_F(HostStage, CountsPicksAndChangesNothing) {
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

TEST_F(HostStage, FilesAreCheckedWithTheHostsKinds) {
  const std::string file = InstallTree::get().scratch("wrong.yaml");
  std::string yaml = read_file(project_file("configs/examples/host_stage/pipeline.yaml"));
  yaml.replace(yaml.find("top: 4"), 6, "top: 99");
  write_file(file, yaml);
  const RunResult result = run_host(file);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "stages.usage.top: '99' is out of range")) << result.err;
  // The program knows the built-in kinds only.
  const RunResult check = run_program({InstallTree::get().prefix() + "/bin/colibri", "check", file});
  EXPECT_TRUE(contains(check.err, "expert_usage")) << check.err;
  EXPECT_EQ(check.status, 1);
}

TEST(Installed, InternalHeadersLieBelowColibri) {
  const std::string include = InstallTree::get().prefix() + "/include";
  for (const auto& entry : fs::directory_iterator(include)) EXPECT_EQ(entry.path().filename(), "colibri");
  for (const auto& entry : fs::recursive_directory_iterator(include)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_FALSE(contains(read_file(entry.path().string()), "#include \"")) << entry.path();
  }
}

TEST(Installed, EveryPublicHeaderIsThere) {
  for (const char* folder : {"runtime/include/colibri", "stages/include/colibri"}) {
    for (const auto& entry : fs::directory_iterator(project_file(folder))) {
      EXPECT_TRUE(
          fs::exists(InstallTree::get().prefix() + "/include/colibri/" + entry.path().filename().string()))
          << entry.path() << " is not in the list of runtime/package/CMakeLists.txt";
    }
  }
}

// Files that programs read know neither where the project lies nor where it was installed first.
TEST(Installed, KnowsNoFolderOfTheBuild) {
  const InstallTree& tree = InstallTree::get();
  for (const auto& entry : fs::recursive_directory_iterator(tree.prefix() + "/" COLIBRI_LIBDIR)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cmake" && extension != ".pc") continue;
    const std::string text = read_file(entry.path().string());
    for (const std::string& folder : {project_file(""), std::string(COLIBRI_BUILD), tree.scratch("first")}) {
      EXPECT_FALSE(contains(text, folder)) << entry.path() << " names " << folder;
    }
  }
}

}  // namespace
}  // namespace colibri::test
