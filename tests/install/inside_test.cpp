// A project with Colibri in its tree, by add_subdirectory: it gets colibri::colibri and nothing
// else. Compiling all of Colibri again would take minutes, so only a source of the host is compiled;
// that the library itself builds is what the whole build shows.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/demo_model.hpp"
#include "tests/install/install_tree.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

class Inside : public ::testing::Test {
 protected:
  RunResult configure(const std::string& more = "-DSOME=ON") const {
    return run_program({COLIBRI_CMAKE, "-S", project_file("tests/install/inside"), "-B", build(), "-G",
                        COLIBRI_GENERATOR, "-DCOLIBRI_SOURCE=" + project_file(""),
                        "-DCMAKE_CXX_COMPILER=" COLIBRI_CXX, more});
  }
  std::string build() const { return folder_.file("build"); }

  TemporaryFolder folder_;
};

TEST_F(Inside, LeavesNothingButTargets) {
  const RunResult configured = configure();
  ASSERT_EQ(configured.status, 0) << configured.out << configured.err;
  EXPECT_TRUE(contains(configured.out, "colibri::colibri is a STATIC_LIBRARY")) << configured.out;

  const RunResult host = run_program({COLIBRI_CMAKE, "--build", build(), "--target", "host"});
  EXPECT_EQ(host.status, 0) << host.out << host.err;

  const RunResult installed =
      run_program({COLIBRI_CMAKE, "--install", build(), "--prefix", folder_.file("prefix")});
  EXPECT_EQ(installed.status, 0) << installed.err;
  EXPECT_FALSE(fs::exists(folder_.file("prefix")));

  RunOptions options;
  options.working_directory = build();
  const RunResult tests = run_program({"ctest", "-N"}, options);
  EXPECT_TRUE(contains(tests.out, "Total Tests: 0")) << tests.out << tests.err;
}

TEST_F(Inside, IsSharedWhereLibrariesAre) {
  const RunResult configured = configure("-DBUILD_SHARED_LIBS=ON");
  EXPECT_EQ(configured.status, 0) << configured.err;
  EXPECT_TRUE(contains(configured.out, "colibri::colibri is a SHARED_LIBRARY")) << configured.out;
}

}  // namespace
}  // namespace colibri::test
