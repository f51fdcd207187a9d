// This build, installed into a folder of its own once in the process, as tests of outside projects
// use it. The folder was moved after the installation: nothing in it may know where it lay.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {

// A file of the project, by its path from the root.
std::string project_file(const std::string& name);

class InstallTree {
 public:
  // Ends the test process when the build cannot be installed: nothing could be tested then.
  static const InstallTree& get();

  const std::string& prefix() const noexcept { return prefix_; }
  // A folder for what a test builds; removed at the end of the process.
  std::string scratch(const std::string& name) const { return folder_.file(name); }
  // Configures the CMake project in `source` against the tree, in scratch(name).
  RunResult configure(const std::string& source, const std::string& name,
                      const std::vector<std::string>& definitions) const;
  // The same, and builds it; false, and a failure of the test, when that fails.
  bool build_project(const std::string& source, const std::string& name,
                     const std::vector<std::string>& definitions) const;
  // Runs a line of shell that succeeds, with pkg-config knowing the tree; what it printed.
  std::string shell(const std::string& line) const;

 private:
  InstallTree();

  TemporaryFolder folder_;
  std::string prefix_;
};

}  // namespace colibri::test
