// Checks what the pages say against what is there.
//
// README.md: its ```sh blocks run in order, in one empty folder, with the built program on PATH. The folder
// holds what the page takes for granted: `checkpoint`, the checkpoint of the demo, and `configs`. A line that
// calls ./setup.sh is not run, since that builds; its verb and flags must be in the script's help. ```yaml
// blocks pass `colibri check`, ```json lines are what the program prints, the ```cpp block was compiled by
// CMake and runs. Flags named anywhere must exist, and in all pages every path in a code span.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/cli/cli_runner.hpp"
#include "tests/docs/markdown.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

fs::path project_root() { return fs::path(COLIBRI_TEST_DATA).parent_path(); }

Page page(const std::string& path) { return parse_page(read_file((project_root() / path).string())); }

// The folder in which a reader of README.md types its commands; the commands run once for all tests.
class Readme : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    fs::create_directory_symlink(project_root() / "configs/demo/checkpoint", folder_->file("checkpoint"));
    fs::create_directory_symlink(project_root() / "configs", folder_->file("configs"));
    for (const Block& block : page("README.md").blocks_in("sh")) run_block(block);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static RunOptions options() {
    RunOptions options;
    options.working_directory = folder_->path();
    const char* path = std::getenv("PATH");
    options.environment = {
        {"PATH", fs::path(kColibriProgram).parent_path().string() + ":" + (path ? path : "")}};
    options.timeout = std::chrono::minutes(5);
    return options;
  }

  static void run_block(const Block& block) {
    std::istringstream lines(block.text);
    std::string script;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("./setup.sh")) script += line + "\n";
    }
    if (script.empty()) return;
    // -x: the last command shown is the one that failed.
    const RunResult result = run_program({"/bin/bash", "-eux", "-o", "pipefail", "-c", script}, options());
    EXPECT_EQ(result.status, 0) << "README.md:" << block.line << ": a command failed:\n" << result.err;
  }

  static std::unique_ptr<TemporaryFolder> folder_;
};
std::unique_ptr<TemporaryFolder> Readme::folder_;

// The lines of `text` that are not empty.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

TEST_F(Readme, ItsCommandsAnswerItsRequests) {
  // The last command of the section on resuming sorts the results.
  const std::vector<std::string> results = lines_of(read_file(folder_->file("results.jsonl")));
  ASSERT_EQ(results.size(), 3U);
  for (const std::string& result : results) {
    EXPECT_EQ(result.find("\"finish_reason\":\"error\""), std::string::npos) << result;
  }
}

TEST_F(Readme, ResultsAreWhatIsPrinted) {
  std::vector<std::string> shown;
  for (const Block& block : page("README.md").blocks_in("json")) {
    for (const std::string& line : lines_of(block.text)) shown.push_back(line);
  }
  ASSERT_EQ(shown.size(), 2U);
  write_file(folder_->file("shown.jsonl"),
             "{\"id\": \"a\", \"prompt\": \"In the beginning\", \"max_tokens\": 8}\n{\"id\": \"b\", "
             "\"promt\": \"x\"}\n");
  const RunResult result = run_program(
      {kColibriProgram, "batch", "model", "shown.jsonl", "-o", "shown.out", "--in-order"}, options());
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(lines_of(read_file(folder_->file("shown.out"))), shown);
}

TEST_F(Readme, PipelinesAreValid) {
  const std::vector<Block> pipelines = page("README.md").blocks_in("yaml");
  ASSERT_FALSE(pipelines.empty());
  for (const Block& block : pipelines) {
    write_file(folder_->file("pipeline.yaml"), block.text);
    const RunResult checked = run_program({kColibriProgram, "check", "pipeline.yaml"}, options());
    EXPECT_EQ(checked.status, 0) << "README.md:" << block.line << "\n" << checked.out << checked.err;
    const RunResult ran = run_program(
        {kColibriProgram, "batch", "model", "requests.jsonl", "--pipeline", "pipeline.yaml", "--quiet"},
        options());
    EXPECT_EQ(ran.status, 0) << ran.err;
  }
}

TEST_F(Readme, ItsProgramRuns) {
  const RunResult result = run_program({COLIBRI_README_HOST, "model"}, options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("0:  of the Middle. 3"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("32 tokens, 1 reads a visit"), std::string::npos) << result.out;
  // The copy to take away is the one that was shown.
  const std::vector<Block> blocks = page("README.md").blocks_in("cpp");
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(read_file((project_root() / "configs/examples/host.cpp").string()), blocks.front().text);
}

TEST_F(Readme, ReferenceIsWhatTheTablesSay) {
  const std::string text = read_file((project_root() / "README.md").string());
  const std::string begin = "<!-- reference -->\n", end = "<!-- end of reference -->\n";
  ASSERT_NE(text.find(begin), std::string::npos);
  ASSERT_NE(text.find(end), std::string::npos);
  const std::size_t at = text.find(begin) + begin.size();
  const RunResult reference = run_program({kColibriProgram, "inspect", "--markdown"}, options());
  EXPECT_EQ(text.substr(at, text.find(end) - at), reference.out)
      << "the reference in README.md is stale; replace what is between the marks by the output of\n"
         "  build/release/bin/colibri inspect --markdown";
}

TEST_F(Readme, ItsFlagsExist) {
  std::string help =
      run_program({"/bin/bash", (project_root() / "setup.sh").string(), "help"}, options()).out;
  for (const char* verb : {"convert", "inspect", "verify", "plan", "batch", "generate", "perplexity", "trace",
                           "tokenize", "replay", "stage", "synth", "check", "run", "version"}) {
    help += run_program({kColibriProgram, "help", verb}, options()).out;
  }
  help += run_program({kColibriProgram, "help", "bench", "disk"}, options()).out;
  const Page readme = page("README.md");
  std::string text;
  for (const std::string& span : readme.spans) {
    if (!span.starts_with("cmake ")) text += " " + span;
  }
  for (const Block& block : readme.blocks_in("sh")) text += " " + block.text;
  static const std::regex kFlag("--[a-z][a-z-]*");
  static const std::regex kSetup("\\./setup\\.sh ([a-z]+)");
  int flags = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), kFlag), end; match != end; ++match, ++flags) {
    const std::string flag = match->str();
    EXPECT_TRUE(std::regex_search(help, std::regex(flag + "[^a-z-]")))
        << "README.md names a flag that is not: " << flag;
  }
  EXPECT_GT(flags, 10);
  int verbs = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), kSetup), end; match != end; ++match, ++verbs) {
    EXPECT_NE(help.find("\n  " + (*match)[1].str() + " "), std::string::npos) << match->str();
  }
  EXPECT_GE(verbs, 2);
}

class Paths : public ::testing::TestWithParam<const char*> {};

TEST_P(Paths, Exist) {
  // A span is a path when it has a slash and nothing else that is special. NAME stands for a name; build/ is
  // made.
  static const std::regex kPath("[A-Za-z_][A-Za-z0-9_.-]*/[A-Za-z0-9_./-]*");
  int paths = 0;
  for (const std::string& span : page(GetParam()).spans) {
    if (!std::regex_match(span, kPath) || span.starts_with("build/") ||
        span.find("NAME") != std::string::npos)
      continue;
    const bool there =
        fs::exists(project_root() / span) || fs::exists(project_root() / "runtime/include" / span);
    EXPECT_TRUE(there) << GetParam() << " names a path that is not there: " << span;
    ++paths;
  }
  EXPECT_GE(paths, 3) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Pages, Paths,
                         ::testing::Values("README.md", "runtime/ARCHITECTURE.md",
                                           "stages/ADDING_A_STAGE.md"));

TEST(Architecture, FitsItsLimit) { EXPECT_LE(page("runtime/ARCHITECTURE.md").lines, 200); }

}  // namespace
}  // namespace colibri::test
