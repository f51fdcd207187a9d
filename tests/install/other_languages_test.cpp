// Hosts in C, Python and Rust, through colibri.h: the examples that come with Colibri, built as
// their first lines say, against the installed tree.
#include <gtest/gtest.h>

#include "tests/cli/demo_model.hpp"
#include "tests/install/install_tree.hpp"

namespace colibri::test {
namespace {

// How the demo model goes on after "In the beginning".
const char* const kAnswer = " of the Middle. 3";

RunResult run_host(std::vector<std::string> command) {
  const std::string libraries = InstallTree::get().prefix() + "/" COLIBRI_LIBDIR;
  RunOptions options;
  options.environment = {{"LD_LIBRARY_PATH", libraries}, {"COLIBRI_LIBRARY", libraries + "/libcolibri.so"}};
  command.push_back(demo_model());
  RunResult result = run_program(command, options);
  EXPECT_EQ(result.status, 0) << command.front() << ": " << result.err;
  return result;
}

bool is_installed(const std::string& program) {
  return run_program({"sh", "-c", program + " >/dev/null 2>&1"}).status == 0;
}

TEST(CHost, ByPkgConfig) {
  if (!is_installed("pkg-config --version")) GTEST_SKIP() << "pkg-config is not installed";
  const InstallTree& tree = InstallTree::get();
  tree.shell(COLIBRI_C " -std=c99 -pedantic -Wall -Wextra -Werror -c " +
             project_file("configs/examples/c_host.c") + " -o c_host.o $(pkg-config --cflags colibri)");
  tree.shell(COLIBRI_C " c_host.o -o c_shared $(pkg-config --libs colibri)");
  tree.shell(
      COLIBRI_C
      " c_host.o -o c_static $(pkg-config --static --define-variable=library=:libcolibri.a --libs colibri)");
  const std::string answers = run_host({tree.scratch("c_shared")}).out;
  EXPECT_TRUE(contains(answers, std::string("0: ") + kAnswer)) << answers;
  EXPECT_TRUE(contains(answers, "\n1: ")) << answers;
  EXPECT_EQ(run_host({tree.scratch("c_static")}).out, answers);
}

// In a project that has no C++ compiler.
TEST(CHost, ByCMake) {
  const InstallTree& tree = InstallTree::get();
  for (const std::string kind : {"shared", "static"}) {
    ASSERT_TRUE(
        tree.build_project(project_file("tests/install/outside_c"), "c_by_cmake_" + kind,
                           {"-DKIND=" + kind, "-DHOST=" + project_file("configs/examples/c_host.c")}));
    const std::string answers = run_host({tree.scratch("c_by_cmake_" + kind + "/c_host")}).out;
    EXPECT_TRUE(contains(answers, std::string("0: ") + kAnswer)) << answers;
  }
}

TEST(PythonHost, PrintsWhatTheModelSays) {
  if (!is_installed("python3 -c 'import ctypes'")) GTEST_SKIP() << "python3 with ctypes is not installed";
  const RunResult result = run_host({"python3", project_file("configs/examples/ctypes_host.py")});
  EXPECT_TRUE(result.out.starts_with(kAnswer)) << result.out;
}

TEST(RustHost, SendsHiddenStatesThroughEachLayer) {
  if (!is_installed("rustc --version")) GTEST_SKIP() << "rustc is not installed";
  const InstallTree& tree = InstallTree::get();
  tree.shell("rustc --edition 2021 -D warnings -L moved/" COLIBRI_LIBDIR " " +
             project_file("configs/examples/main.rs") + " -o rust_host");
  const std::string layers = run_host({tree.scratch("rust_host")}).out;
  // The demo model has 6 layers with experts.
  EXPECT_EQ(std::count(layers.begin(), layers.end(), '\n'), 6) << layers;
  EXPECT_FALSE(contains(layers, "NaN")) << layers;
}

}  // namespace
}  // namespace colibri::test
