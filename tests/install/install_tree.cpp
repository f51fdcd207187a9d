// Installs this build, and builds against it.
#include "tests/install/install_tree.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

// Two compilers at once with others beside them: minutes.
constexpr std::chrono::minutes kTimeout{5};

}  // namespace

std::string project_file(const std::string& name) {
  return (fs::path(COLIBRI_TEST_DATA).parent_path() / name).string();
}

const InstallTree& InstallTree::get() {
  static const InstallTree tree;
  return tree;
}

InstallTree::InstallTree() : prefix_(folder_.file("moved")) {
  RunOptions options;
  options.timeout = kTimeout;
  const std::string first = folder_.file("first");
  const RunResult installed =
      run_program({COLIBRI_CMAKE, "--install", COLIBRI_BUILD, "--prefix", first}, options);
  if (installed.status != 0) {
    std::cerr << installed.out << installed.err;
    std::exit(1);
  }
  fs::rename(first, prefix_);
}

RunResult InstallTree::configure(const std::string& source, const std::string& name,
                                 const std::vector<std::string>& definitions) const {
  std::vector<std::string> command = {COLIBRI_CMAKE, "-S", source, "-B", scratch(name)};
  command.push_back("-DCMAKE_PREFIX_PATH=" + prefix_);
  command.push_back("-DCMAKE_C_COMPILER=" COLIBRI_C);
  command.push_back("-DCMAKE_CXX_COMPILER=" COLIBRI_CXX);
  command.insert(command.end(), definitions.begin(), definitions.end());
  return run_program(command);
}

bool InstallTree::build_project(const std::string& source, const std::string& name,
                                const std::vector<std::string>& definitions) const {
  const RunResult configured = configure(source, name, definitions);
  EXPECT_EQ(configured.status, 0) << configured.out << configured.err;
  if (configured.status != 0) return false;
  RunOptions options;
  options.timeout = kTimeout;
  const RunResult built = run_program({COLIBRI_CMAKE, "--build", scratch(name)}, options);
  EXPECT_EQ(built.status, 0) << built.out << built.err;
  return built.status == 0;
}

std::string InstallTree::shell(const std::string& line) const {
  RunOptions options;
  options.timeout = kTimeout;
  options.working_directory = folder_.path();
  options.environment = {{"PKG_CONFIG_PATH", prefix_ + "/" COLIBRI_LIBDIR "/pkgconfig"},
                         {"LD_LIBRARY_PATH", prefix_ + "/" COLIBRI_LIBDIR}};
  const RunResult result = run_program({"sh", "-ec", line}, options);
  EXPECT_EQ(result.status, 0) << line << "\n" << result.out << result.err;
  return result.out;
}

}  // namespace colibri::test
