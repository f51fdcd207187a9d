// A folder of files that stands for / in tests of the machine model; removed when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace colibri::testing {

class FakeTree {
 public:
  FakeTree() {
    std::string name = (std::filesystem::temp_directory_path() / "colibri_tree_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  FakeTree& file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  // What every machine has: CPUs 0 to 7, 8 GiB of memory available.
  FakeTree& plain_machine() {
    file("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n");
    return file("proc/meminfo",
                "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace colibri::testing
