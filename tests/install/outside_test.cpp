// Projects outside the tree: in C++ by CMake and by pkg-config, with the shared library and with
// the static one, in programs with exceptions and type information and without. Each opens the
// demo model and generates text, which is the same everywhere.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/demo_model.hpp"
#include "tests/install/install_tree.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

const char* const kHost = "configs/examples/host.cpp";

// A source that includes each installed C++ header; its path.
std::string all_headers() {
  const InstallTree& tree = InstallTree::get();
  const fs::path include = tree.prefix() + "/include";
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(include)) {
    if (entry.path().extension() != ".hpp") continue;
    text += "#include <" + fs::relative(entry.path(), include).generic_string() + ">\n";
  }
  write_file(tree.scratch("all_headers.cpp"), text);
  return tree.scratch("all_headers.cpp");
}

// Whether a program is linked with libcolibri.so.
bool is_linked_shared(const std::string& program) {
  const RunResult result = run_program({"readelf", "-dW", program});
  EXPECT_EQ(result.status, 0) << result.err;
  return contains(result.out, "[libcolibri.so.");
}

// What the host prints, but for what differs from run to run.
std::string answers_of(const std::string& program) {
  RunOptions options;
  options.environment = {{"LD_LIBRARY_PATH", InstallTree::get().prefix() + "/" COLIBRI_LIBDIR}};
  const RunResult result = run_program({program, demo_model()}, options);
  EXPECT_EQ(result.status, 0) << program << ": " << result.err;
  EXPECT_FALSE(result.out.empty());
  return result.out;
}

class HostByCMake : public ::testing::TestWithParam<const char*> {};

TEST_P(HostByCMake, WithoutExceptionsAndTypeInformation) {
  const std::string kind = GetParam();
  const InstallTree& tree = InstallTree::get();
  ASSERT_TRUE(
      tree.build_project(project_file("tests/install/outside"), "by_cmake_" + kind,
                         {"-DKIND=" + kind, "-DHOST=" + project_file(kHost), "-DHEADERS=" + all_headers()}));
  const std::string program = tree.scratch("by_cmake_" + kind + "/cpp_host");
  EXPECT_EQ(is_linked_shared(program), kind == "shared");
  answers_of(program);
}
INSTANTIATE_TEST_SUITE_P(Kinds, HostByCMake, ::testing::Values("shared", "static"),
                         [](const auto& tested) { return std::string(tested.param); });

struct Choice {
  std::vector<std::string> definitions;
  std::string outcome;
};

// Which library colibri::colibri is.
TEST(ByCMake, ChoosesTheLibrary) {
  const InstallTree& tree = InstallTree::get();
  for (const Choice& choice : std::vector<Choice>{
           {{}, "colibri::colibri is a SHARED_LIBRARY"},
           {{"-DKIND=static"}, "colibri::colibri is a STATIC_LIBRARY"},
           {{"-DKIND=shared;static"}, "colibri::colibri is a SHARED_LIBRARY"},
           {{"-Dcolibri_USE_STATIC_LIBS=ON"}, "colibri::colibri is a STATIC_LIBRARY"},
           {{"-Dcolibri_USE_STATIC_LIBS=ON", "-DKIND=shared"}, "colibri::colibri is a SHARED_LIBRARY"},
           {{"-DKIND=python"}, "there is no component python"},
       }) {
    fs::remove_all(tree.scratch("choice"));
    const RunResult result =
        tree.configure(project_file("tests/install/outside"), "choice", choice.definitions);
    EXPECT_TRUE(contains(result.out + result.err, choice.outcome)) << result.out << result.err;
  }
}

TEST(ByPkgConfig, Hosts) {
  if (run_program({"pkg-config", "--version"}).status != 0) GTEST_SKIP() << "pkg-config is not installed";
  const InstallTree& tree = InstallTree::get();
  tree.shell(COLIBRI_CXX " -std=c++20 -c " + project_file(kHost) +
             " -o host.o $(pkg-config --cflags colibri)");
  tree.shell(COLIBRI_CXX " host.o -o pc_shared $(pkg-config --libs colibri)");
  tree.shell(
      COLIBRI_CXX
      " host.o -o pc_static $(pkg-config --static --define-variable=library=:libcolibri.a --libs colibri)");
  EXPECT_TRUE(is_linked_shared(tree.scratch("pc_shared")));
  EXPECT_FALSE(is_linked_shared(tree.scratch("pc_static")));
  EXPECT_EQ(answers_of(tree.scratch("pc_shared")), answers_of(tree.scratch("pc_static")));
  EXPECT_EQ(tree.shell("pkg-config --modversion colibri"), COLIBRI_VERSION "\n");
  // Only who links the static library needs the others.
  EXPECT_FALSE(contains(tree.shell("pkg-config --libs colibri"), "-ltbb"));

  // Where only the static library is installed, --static is all that it takes; CMake needs no word.
  tree.shell("cp -r moved only_static && cd only_static/" COLIBRI_LIBDIR
             " && rm libcolibri.so* cmake/colibri/colibriSharedTargets*");
  tree.shell("PKG_CONFIG_PATH=$PWD/only_static/" COLIBRI_LIBDIR "/pkgconfig && " COLIBRI_CXX
             " host.o -o only_pc $(pkg-config --static --libs colibri)");
  EXPECT_FALSE(is_linked_shared(tree.scratch("only_pc")));
  const RunResult configured = tree.configure(project_file("tests/install/outside"), "only_cmake",
                                              {"-DCMAKE_PREFIX_PATH=" + tree.scratch("only_static")});
  EXPECT_TRUE(contains(configured.out, "colibri::colibri is a STATIC_LIBRARY")) << configured.err;
}

}  // namespace
}  // namespace colibri::test
