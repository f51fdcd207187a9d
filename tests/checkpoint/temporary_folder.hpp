// A folder that is empty at the start of a test and gone at its end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace colibri::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name =
        info == nullptr ? "suite" : std::string(info->test_suite_name()) + "." + info->name();
    std::string flat = "colibri." + name + "." + std::to_string(::getpid());
    for (char& c : flat) c = c == '/' ? '_' : c;
    path_ = std::filesystem::path(::testing::TempDir()) / flat;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << content;
  ASSERT_TRUE(stream.good()) << path;
}

// A writable copy of a folder's files.
inline void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    if (entry.is_regular_file()) write_file(to / entry.path().filename(), read_file(entry.path()));
  }
}

}  // namespace colibri::test
