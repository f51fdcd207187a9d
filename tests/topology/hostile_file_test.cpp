// Files that nobody means well: limits, and random mutations of a valid file. Whatever comes
// in, the answer is a list of one-line problems or a spec that holds together.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/test_scale.hpp"
#include "tests/topology/builtin_kinds.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

using testing::builtin_kinds;

std::vector<std::string> problems_of(std::string_view yaml) {
  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(yaml, "p.yaml", builtin_kinds(), {}, problems);
  check_pipeline(spec, builtin_kinds(), problems);
  return problems.lines;
}

TEST(HostileFile, SizeLimit) {
  std::string yaml(default_pipeline_yaml());
  yaml.resize(kMaximumPipelineBytes, '\n');
  EXPECT_TRUE(problems_of(yaml).empty());
  yaml += '\n';
  EXPECT_EQ(
      problems_of(yaml),
      (std::vector<std::string>{"p.yaml: file is too large; expected at most 1 MiB, found 1048577 bytes"}));
}

TEST(HostileFile, BytesThatAreNotUtf8) {
  const auto refused_at = [](std::string_view place, std::string_view byte) {
    return std::vector<std::string>{"p.yaml:" + std::string(place) + ": not UTF-8, byte '\\x" +
                                    std::string(byte) + "'; expected a text file in UTF-8"};
  };
  EXPECT_EQ(problems_of("version: 1\nst\xff"
                        "ages: {}\n"),
            refused_at("2:3", "FF"));
  EXPECT_EQ(problems_of("version: 1\nstages: {\"\xed\xa0\x80\": {kind: write}}\n"), refused_at("2:11", "ED"));
  EXPECT_EQ(problems_of("version: 1\nmodel: caf\xe9\n"), refused_at("2:11", "E9"));
  EXPECT_EQ(problems_of("version: 1  # caf\xc3"), refused_at("1:18", "C3"));
  const auto accented = problems_of("version: 1\nst\xc3\xa9: {}\n");  // a whole character is a name like any
  ASSERT_FALSE(accented.empty());
  EXPECT_NE(accented.front().find("st\xc3\xa9: unknown key"), std::string::npos) << accented.front();
}

TEST(HostileFile, ControlCharacters) {
  EXPECT_EQ(
      problems_of(std::string_view("version: 1\nthreads: \0 2\n", 24)),
      (std::vector<std::string>{"p.yaml:2:10: control character '\\x00'; expected a text file in UTF-8"}));
  EXPECT_EQ(
      problems_of("version: 1\x04"),
      (std::vector<std::string>{"p.yaml:1:11: control character '\\x04'; expected a text file in UTF-8"}));
}

TEST(HostileFile, UnknownAliasHasItsPlace) {
  const std::vector<std::string> lines = problems_of("version: 1\nthreads: *nobody\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("p.yaml:2:10: not valid YAML: ")) << lines[0];
}

TEST(HostileFile, ManyProblemsAreCut) {
  std::string yaml = "version: 1\n";
  for (int i = 0; i < 1000; ++i) yaml += "key" + std::to_string(i) + ": 1\n";
  const std::vector<std::string> lines = problems_of(yaml);
  EXPECT_EQ(lines.size(), kMaximumProblems + 1);
  EXPECT_EQ(lines.back(), "there are more problems than are listed; correct these first");
}

// Each would take very long, or very deep a stack, if a limit came late.
TEST(HostileFile, LargeStructures) {
  std::string keys = "version: 1\nstages:\n", flat = "version: 1\nedges: [", deep = "version: 1\nsteps: ";
  for (int i = 0; i < 60000; ++i) {
    keys += "  s" + std::to_string(i) + ": {}\n";
    flat += "1,";
    deep += "[";
  }
  for (const std::string& yaml :
       {keys, flat, deep, flat + "]", std::string(900000, '['), std::string(900000, '-'),
        std::string(900000, 'a'), "version: " + std::string(900000, '1')}) {
    EXPECT_FALSE(problems_of(yaml).empty());
  }
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t edits = 1 + below(6); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void edit(std::string& text) {
    static constexpr std::string_view kPieces[] = {":",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   "&a ",
                                                   "*a",
                                                   "<<: ",
                                                   "- ",
                                                   "\n",
                                                   "\t",
                                                   "\"",
                                                   "'",
                                                   "|\n",
                                                   "!!map ",
                                                   "? ",
                                                   "%",
                                                   "---\n",
                                                   "...",
                                                   "#",
                                                   "  ",
                                                   "auto",
                                                   "1e999",
                                                   "-1",
                                                   "route.",
                                                   ".waves",
                                                   "kind: ",
                                                   "null",
                                                   "\xFF",
                                                   std::string_view("\0", 1),
                                                   "~",
                                                   "\xE2\x82",
                                                   "cpus: [0, 0]",
                                                   "numa_node: 3",
                                                   "threads: 99999999999",
                                                   "capacity: 0",
                                                   "\xEF\xBB\xBF"};
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(below(20), text.size() - at);
    switch (below(5)) {
      case 0: text.insert(at, kPieces[below(std::size(kPieces))]); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(below(text.size()), text.substr(at, length)); break;
      case 3:
        if (!text.empty()) text[at] = static_cast<char>(below(256));
        break;
      case 4: text.replace(at, length, kPieces[below(std::size(kPieces))]); break;
    }
  }

  std::mt19937 random_;
};

TEST(HostileFile, MutationsGiveProblemsOrASpecThatHolds) {
  const auto mutations = static_cast<std::uint32_t>(testing::scaled(1000, 250));
  std::uint32_t clean = 0;
  for (std::uint32_t seed = 0; seed < mutations; ++seed) {
    const std::string yaml = Mutator(seed).mutate(std::string(default_pipeline_yaml()));
    PipelineProblems problems;
    const PipelineSpec spec = parse_pipeline(yaml, "p.yaml", builtin_kinds(), {}, problems);
    check_pipeline(spec, builtin_kinds(), problems);
    draw_pipeline_dot(spec, builtin_kinds());
    const std::string dump = dump_pipeline(spec, builtin_kinds());
    for (const std::string& line : problems.lines) {
      EXPECT_EQ(line.find('\n'), std::string::npos) << seed << ": " << line;
      EXPECT_TRUE(line.starts_with("p.yaml:")) << seed << ": " << line;
    }
    if (!problems.lines.empty()) continue;
    ++clean;
    EXPECT_TRUE(problems_of(dump).empty()) << "seed " << seed << "\n" << dump;
  }
  // Mutations of comments alone leave the file right: both outcomes are seen.
  EXPECT_GT(20 * clean, mutations);
  EXPECT_LT(20 * clean, 19 * mutations);
}

}  // namespace
}  // namespace colibri
