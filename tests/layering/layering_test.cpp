// Reads every source file of the tree: include lines, length, and how CMake files name sources.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "tests/layering/include_rules.hpp"

namespace colibri::layering {
namespace {

namespace fs = std::filesystem;
using Headers = std::set<std::string, std::less<>>;

constexpr const char* kSourceFolders[] = {"runtime", "stages", "topology", "io", "kernels"};
constexpr const char* kOtherFolders[] = {"tests", "bench"};
constexpr std::size_t kMaximumLines = 700;

fs::path project_root() { return fs::path(COLIBRI_TEST_DATA).parent_path(); }

bool is_source(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".cpp", ".hpp", ".h",   ".c", ".cc",
                                                    ".cu",  ".cuh", ".inc", ".in"};
  return kExtensions.contains(path.extension().string());
}

bool is_cmake(const fs::path& path) {
  return path.filename() == "CMakeLists.txt" || path.extension() == ".cmake";
}

// Calls visit(path from the root, lines) for each file that `wanted` takes.
template <class Wanted, class Visit>
std::size_t visit_files(std::initializer_list<std::span<const char* const>> groups, Wanted wanted,
                        Visit visit) {
  std::size_t count = 0;
  for (const auto folders : groups) {
    for (const char* folder : folders) {
      for (const auto& entry : fs::recursive_directory_iterator(project_root() / folder)) {
        if (!entry.is_regular_file() || !wanted(entry.path())) continue;
        std::ifstream file(entry.path());
        std::vector<std::string> lines;
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        visit(fs::relative(entry.path(), project_root()).generic_string(), lines);
        ++count;
      }
    }
  }
  return count;
}

Headers stage_headers() {
  Headers names;
  for (const auto& entry : fs::directory_iterator(project_root() / "stages/include/colibri")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(Layering, EveryIncludeIsAllowed) {
  const Headers headers = stage_headers();
  const std::size_t files =
      visit_files({kSourceFolders}, is_source, [&](const std::string& path, const auto& lines) {
        for (std::size_t i = 0; i < lines.size(); ++i) {
          const std::string problem = check_include(path, lines[i], headers);
          EXPECT_TRUE(problem.empty()) << path << ":" << i + 1 << ": " << problem;
        }
      });
  EXPECT_GT(files, 50u);  // the folders were found
}

TEST(Layering, NoFileIsLong) {
  visit_files({kSourceFolders, kOtherFolders}, is_source, [](const std::string& path, const auto& lines) {
    EXPECT_LE(lines.size(), kMaximumLines)
        << path << ": split it; no file has more than " << kMaximumLines << " lines";
  });
}

TEST(Layering, SourcesAreNamedOneByOne) {
  const auto check = [](const std::string& path, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_FALSE(collects_by_pattern(lines[i])) << path << ":" << i + 1 << ": name the files";
    }
  };
  EXPECT_GT(visit_files({kSourceFolders, kOtherFolders}, is_cmake, check), 10u);
  std::ifstream root(project_root() / "CMakeLists.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(root, line);) lines.push_back(line);
  EXPECT_FALSE(lines.empty());
  check("CMakeLists.txt", lines);
}

// The rules catch what they are there for.
TEST(LayeringRules, BadIncludesAreCaught) {
  const Headers headers = {"stage.hpp", "messages.hpp"};
  const std::pair<const char*, const char*> bad[] = {
      {"io/read/x.cpp", "#include \"topology/machine.hpp\""},
      {"kernels/x.cpp", "#include \"io/status.hpp\""},
      {"topology/x.hpp", "  #  include <colibri/stage.hpp>"},
      {"stages/x.cpp", "#include \"runtime/engine/actor.hpp\""},
      {"stages/include/colibri/x.hpp", "#include <colibri/engine.hpp>"},
      {"stages/x.cpp", "#include <tbb/task_arena.h>"},
      {"stages/x.cpp", "#include <oneapi/tbb.h>"},
      {"io/read/x.cpp", "#include <boost/lockfree/queue.hpp>"},
      {"runtime/engine/x.cpp", "#include <boost/asio.hpp>"},
      {"runtime/engine/x.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/clients/x.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/batch.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/batch.cpp", "#include <CLI/Option.hpp>"},
      {"runtime/cli/verb_flags.hpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/pages/main.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/engine/x.cpp", "#include \"spdlog/spdlog.h\""},
      {"runtime/memory/x.cpp", "#include <numa.h>"},
      {"runtime/engine/x.cpp", "#include <hwloc.h>"},
      {"io/text/x.cpp", "#include <yaml-cpp/yaml.h>"},
      {"topology/x.cpp", "#include <nlohmann/json.hpp>"},
      {"runtime/x.cpp", "#include <nlohmann/json.hpp>"},
      {"stages/x.cpp", "#include <pcre2.h>"},
      {"stages/x.cpp", "#include <utf8proc.h>"},
      {"runtime/x.cpp", "#include <xxhash.h>"},
      {"runtime/x.cpp", "#include <openssl/sha.h>"},
      {"runtime/x.cpp", "#include <liburing.h>"},
      {"kernels/avx2/x.cpp", "#include <cuda_runtime.h>"},
      {"io/x.cpp", "#include <Eigen/dense.hpp>"},
      {"io/text/x.cpp", "#include \"utf8.hpp\""},
      {"io/text/x.cpp", "#include \"tests/support/x.hpp\""},
  };
  for (const auto& [path, line] : bad)
    EXPECT_NE(check_include(path, line, headers), "") << path << " " << line;
}

TEST(LayeringRules, GoodIncludesPass) {
  const Headers headers = {"stage.hpp", "messages.hpp"};
  const std::pair<const char*, const char*> good[] = {
      {"io/read/x.cpp", "#include \"io/status.hpp\""},
      {"io/read/x.cpp", "#include \"kernels/number_format.hpp\""},
      {"runtime/engine/x.cpp", "#include <colibri/stage.hpp>"},
      {"runtime/engine/x.cpp", "#include <colibri/engine.hpp>"},
      {"runtime/engine/x.cpp", "#include \"kernels/kernel_table.hpp\""},
      {"runtime/engine/x.cpp", "#include <oneapi/tbb/flow_graph.h>"},
      {"runtime/engine/x.cpp", "#include <boost/lockfree/spsc_queue.hpp>"},
      {"runtime/cli/verb_flags.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/command_line.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/pages/command_tree.cpp", "#include <CLI/CLI.hpp>"},
      {"runtime/cli/x.cpp", "#include <spdlog/spdlog.h>"},
      {"io/read/x.cpp", "#include <boost/asio/post.hpp>"},
      {"io/text/x.cpp", "#include <nlohmann/json.hpp>"},
      {"topology/x.cpp", "#include <hwloc.h>"},
      {"kernels/cuda/x.cu", "#include <cuda_runtime.h>"},
      {"stages/x.cpp", "#include <sys/mman.h>"},
      {"stages/x.cpp", "// #include <tbb/tbb.h>"},
      {"stages/x.cpp", "#include HEADER"},
      {"tests/stages/x.cpp", "#include <oneapi/tbb.h>"},
  };
  for (const auto& [path, line] : good)
    EXPECT_EQ(check_include(path, line, headers), "") << path << " " << line;
}

TEST(LayeringRules, PatternsInCmakeAreCaught) {
  for (const char* line :
       {"file(GLOB sources *.cpp)", "  file( GLOB_RECURSE x", "file(GLOB", "FILE (GLOB x)"}) {
    EXPECT_TRUE(collects_by_pattern(line)) << line;
  }
  for (const char* line :
       {"# no GLOB here", "set_property(GLOBAL x)", "IMPORTED_TARGET GLOBAL", "NO_GLOB_HERE"}) {
    EXPECT_FALSE(collects_by_pattern(line)) << line;
  }
}

}  // namespace
}  // namespace colibri::layering
