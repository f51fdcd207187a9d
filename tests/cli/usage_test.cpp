// Wrong command lines, and right ones that ask about the program: exact exit status, and the words
// that a user needs to see.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

struct UsageCase {
  const char* name;
  std::vector<std::string> arguments;
  int status;
  std::vector<std::string> out;  // fragments of standard output; none: must be empty
  std::vector<std::string> err;  // fragments of standard error; none: must be empty
};

void PrintTo(const UsageCase& usage, std::ostream* stream) { *stream << usage.name; }

class Usage : public testing::TestWithParam<UsageCase> {};

void expect_fragments(const std::string& text, const std::vector<std::string>& fragments) {
  if (fragments.empty()) {
    EXPECT_EQ(text, "");
  }
  for (const std::string& fragment : fragments) {
    EXPECT_NE(text.find(fragment), std::string::npos) << "missing: " << fragment << "\nin: " << text;
  }
}

TEST_P(Usage, GivesStatusAndWords) {
  const RunResult result = run_colibri(GetParam().arguments);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, GetParam().status);
  expect_fragments(result.out, GetParam().out);
  expect_fragments(result.err, GetParam().err);
}

const std::vector<UsageCase> kWrong = {
    {"no_verb", {}, 2, {}, {"colibri: error: no verb given", "colibri --help"}},
    {"unknown_verb", {"covnert"}, 2, {}, {"unknown verb: covnert; did you mean convert?"}},
    {"unknown_verb_far", {"zzzzzz"}, 2, {}, {"unknown verb: zzzzzz. Verbs are listed by: colibri --help"}},
    {"unknown_global_flag", {"--vresion"}, 2, {}, {"unknown flag: --vresion; did you mean --version?"}},
    {"unknown_flag",
     {"convert", "in", "out", "--wieghts", "int8"},
     2,
     {},
     {"colibri: error: convert: unknown flag: --wieghts; did you mean --weights?", "colibri help convert"}},
    {"unknown_flag_with_value",
     {"convert", "in", "out", "--chnuk=4KiB"},
     2,
     {},
     {"unknown flag: --chnuk; did you mean --chunk?"}},
    {"unknown_flag_before_missing_argument",
     {"verify", "--quite"},
     2,
     {},
     {"verify: unknown flag: --quite; did you mean --quiet?"}},
    {"flag_of_another_verb", {"verify", "x", "--dump"}, 2, {}, {"verify: unknown flag: --dump. Usage"}},
    {"extra_argument", {"verify", "a", "b"}, 2, {}, {"verify: unexpected argument: b"}},
    {"convert_nothing", {"convert"}, 2, {}, {"convert: CHECKPOINT_DIR is required"}},
    {"convert_no_output", {"convert", "in"}, 2, {}, {"convert: OUT_DIR is required"}},
    {"convert_weights", {"convert", "in", "out", "--weights", "int3"}, 2, {}, {"--weights", "int3"}},
    {"convert_weights_no_value", {"convert", "in", "out", "--weights"}, 2, {}, {"--weights"}},
    {"convert_chunk_odd",
     {"convert", "in", "out", "--chunk", "1000"},
     2,
     {},
     {"--chunk", "multiple of 4KiB", "1000"}},
    {"convert_chunk_zero", {"convert", "in", "out", "--chunk", "0"}, 2, {}, {"--chunk", "multiple of 4KiB"}},
    {"convert_chunk_huge", {"convert", "in", "out", "--chunk", "8EiB"}, 2, {}, {"--chunk"}},
    {"convert_chunk_word", {"convert", "in", "out", "--chunk", "banana"}, 2, {}, {"--chunk", "banana"}},
    {"convert_missing_folder",
     {"convert", "/no/such/checkpoint", "/no/such/output"},
     1,
     {},
     {"colibri: error: convert: ", "/no/such/checkpoint"}},
    {"inspect_missing_folder",
     {"inspect", "/no/such/model"},
     1,
     {},
     {"colibri: error: inspect: ", "/no/such/model"}},
    {"inspect_not_a_model", {"inspect", COLIBRI_TEST_DATA}, 1, {}, {"inspect: ", COLIBRI_TEST_DATA}},
    {"verify_missing_folder", {"verify", "/no/such/model"}, 1, {}, {"verify: ", "/no/such/model"}},
    {"verify_not_a_model", {"verify", COLIBRI_TEST_DATA}, 1, {}, {"verify: ", COLIBRI_TEST_DATA}},
    {"tokenize_no_input", {"tokenize", "x"}, 2, {}, {"tokenize: --jsonl is required"}},
    {"tokenize_missing_model",
     {"tokenize", "/no/such/tokenizer.json", "--jsonl", "-"},
     1,
     {},
     {"tokenize: ", "/no/such/tokenizer.json"}},
    {"tokenize_folder_without_tokenizer",
     {"tokenize", COLIBRI_TEST_DATA, "--jsonl", "-"},
     1,
     {},
     {"tokenize: ", COLIBRI_TEST_DATA "/tokenizer.json"}},
    {"tokenize_missing_input",
     {"tokenize", COLIBRI_TEST_DATA "/golden/tokenizers/qwen_style", "--jsonl", "/no/such/texts.jsonl"},
     1,
     {},
     {"tokenize: ", "/no/such/texts.jsonl"}},
    {"synth_no_name", {"synth", "--shape", "olmoe-1b-7b", ""}, 2, {}, {"synth: OUT_DIR: ", "not empty"}},
    {"synth_negative_seed",
     {"synth", "--shape", "olmoe-1b-7b", "--seed", "-1", "/no/such/output"},
     2,
     {},
     {"synth: --seed: expected an integer from 0 to 18446744073709551615: -1"}},
    {"convert_empty_name", {"convert", "in", ""}, 2, {}, {"convert: OUT_DIR: ", "not empty"}},
    {"check_nothing", {"check"}, 2, {}, {"check: FILE is required"}},
    {"check_missing_file", {"check", "/no/such.yaml"}, 1, {}, {"check: ", "/no/such.yaml"}},
    {"check_bad_setting", {"check", "x.yaml", "--set", "lanes"}, 2, {}, {"PATH=VALUE", "lanes"}},
    {"check_dump_and_dot",
     {"check", "x.yaml", "--dump", "--dot"},
     2,
     {},
     {"check: ", "--dot", "--dump", "excludes"}},
    {"help_unknown_verb", {"help", "tokenise"}, 2, {}, {"unknown verb: tokenise; did you mean tokenize?"}},
};

const std::vector<UsageCase> kRight = {
    {"version_flag", {"--version"}, 0, {"colibri 0."}, {}},
    {"version", {"version"}, 0, {"colibri 0."}, {}},
    {"version_verbose", {"version", "--verbose"}, 0, {"kernels: ", "(chosen)", "scalar", "compiler: "}, {}},
    {"help_flag", {"--help"}, 0, {"convert", "tokenize", "Examples:"}, {}},
    {"help", {"help"}, 0, {"convert", "tokenize", "Examples:"}, {}},
    {"help_convert", {"help", "convert"}, 0, {"colibri convert", "--weights", "int8", "int4", "Examples:"}, {}},
    {"convert_help", {"convert", "--help"}, 0, {"--chunk", "--force", "Examples:"}, {}},
    {"inspect_help", {"inspect", "--help"}, 0, {"--json", "Examples:"}, {}},
    {"verify_help", {"verify", "--help"}, 0, {"DIR", "Examples:"}, {}},
    {"tokenize_help", {"tokenize", "--help"}, 0, {"--no-special", "--skip-special", "Examples:"}, {}},
    {"check_help", {"check", "--help"}, 0, {"--dump", "--dot", "--set", "--experts-memory", "Examples:"}, {}},
    {"version_help", {"version", "--help"}, 0, {"--verbose", "COLIBRI_KERNELS", "Examples:"}, {}},
};

std::string case_name(const testing::TestParamInfo<UsageCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Wrong, Usage, testing::ValuesIn(kWrong), case_name);
INSTANTIATE_TEST_SUITE_P(Right, Usage, testing::ValuesIn(kRight), case_name);

TEST(Program, ForcesKernelsByName) {
  RunOptions options;
  options.environment = {{"COLIBRI_KERNELS", "scalar"}};
  const RunResult forced = run_colibri({"version", "--verbose"}, options);
  EXPECT_EQ(forced.status, 0);
  EXPECT_NE(forced.out.find("scalar (chosen)"), std::string::npos) << forced.out;

  options.environment = {{"COLIBRI_KERNELS", "abacus"}};
  const RunResult unknown = run_colibri({"version", "--verbose"}, options);
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.err.find("abacus; usable are: "), std::string::npos) << unknown.err;
}

TEST(Program, ReportsOutputThatCannotBeWritten) {
  RunOptions options;
  options.output_file = "/dev/full";
  const RunResult result = run_colibri({"help"}, options);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("colibri: error: cannot write to standard output"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace colibri::test
