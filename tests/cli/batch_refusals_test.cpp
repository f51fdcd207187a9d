// colibri batch, what it refuses: lines, one by one, while the others are answered; and jobs, before
// any weights are read and without touching what an earlier job has left.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

std::string good(const std::string& id) {
  return R"({"id":")" + id + R"(","tokens":[300,301],"max_tokens":3})";
}

std::string many_tokens(std::size_t count) { return Json(std::vector<int>(count, 300)).dump(); }

struct BadLine {
  std::string line;
  std::string code;
  std::vector<std::string> words;  // of its message: what is wrong, and what to do
};

TEST(BatchRefusals, BadLinesAreAnsweredOneByOne) {
  // A pool for 656 tokens, of which the demo's context of 2,048 would allow more.
  const std::vector<BadLine> bad = {
      {R"({"id": "cut)", "invalid_input", {"JSON"}},
      {"not json at all", "invalid_input", {"JSON"}},
      {R"(["a list"])", "invalid_input", {"object"}},
      {R"({"id":"range","tokens":[300,4096]})", "invalid_input", {"tokens[1]", "0 to 4095"}},
      {R"({"id":"negative","tokens":[-1]})", "invalid_input", {"tokens[0]", "0 to 4095"}},
      {R"({"id":"long","tokens":)" + many_tokens(2049) + "}", "invalid_input", {"2049", "2048", "shorten"}},
      {R"({"id":"no-room","tokens":)" + many_tokens(2000) + R"(,"max_tokens":49})",
       "invalid_input",
       {"2048", "48"}},
      {R"({"id":"pool","tokens":)" + many_tokens(700) + R"(,"max_tokens":3})",
       "capacity",
       {"can never fit the KV pool", "memory.dynamic"}},
      {R"({"id":"field","tokens":[1],"max_token":3})", "invalid_input", {"unknown field", "max_tokens"}},
      {R"({"id":"twice","tokens":[1],"tokens":[2]})", "invalid_input", {"tokens"}},
      {R"({"id":"both","tokens":[1],"prompt":"x"})", "invalid_input", {"both"}},
      {R"({"id":"none"})", "invalid_input", {"neither"}},
      {R"({"id":"type","prompt":7})", "invalid_input", {"'prompt'", "string"}},
      {R"({"id":"hot","prompt":"x","temperature":-1})", "invalid_input", {"temperature", "0 to 100"}},
      {"{\"id\":\"utf8\",\"prompt\":\"\xff\"}", "invalid_input", {"UTF-8"}},
      {R"({"custom_id":"n","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"x","n":2}})",
       "unsupported",
       {"body.n", "remove"}},
  };
  std::string input = "\xEF\xBB\xBF" + good("first") + "\r\n\r\n";
  for (const BadLine& line : bad) input += line.line + "\n";
  input += good("last");
  const BatchRun batch(input, {"--set", "memory.dynamic=8MiB"});
  EXPECT_EQ(batch.status(), 3) << batch.err();
  EXPECT_TRUE(contains(batch.err(), "lines answered with an error: " + std::to_string(bad.size())))
      << batch.err();
  const auto results = batch.results();
  ASSERT_EQ(results.size(), bad.size() + 2);
  EXPECT_EQ(results.at(0)["id"], "first");
  EXPECT_EQ(results.at(0)["tokens"].size(), 3U);
  EXPECT_EQ(results.at(bad.size() + 2)["tokens"], results.at(0)["tokens"]);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const Json& result = results.at(i + 2);  // after the first line and the blank one
    ASSERT_TRUE(result.contains("error")) << result;
    const Json& error = result["error"];
    EXPECT_EQ(error["code"], bad[i].code) << result;
    for (const std::string& word : bad[i].words) {
      EXPECT_TRUE(contains(error["message"], word)) << word << " not in: " << error["message"];
    }
    if (result.contains("index")) {
      EXPECT_EQ(result["finish_reason"], "error");
    } else {
      EXPECT_EQ(result["response"]["status_code"], 400);
    }
  }
}

TEST(BatchRefusals, ARequestForThePoolOnlyMayTakeAllOfIt) {
  const BatchRun batch(
      R"({"id":"a","tokens":)" + many_tokens(600) + R"(,"max_tokens":56})" + "\n" + good("b"),
      {"--set", "memory.dynamic=8MiB"});
  EXPECT_EQ(batch.status(), 0) << batch.err();
}

TEST(BatchRefusals, AnEmptyInputIsSaidAndIsNoFailure) {
  for (const std::string input : {"", "\n\n  \n"}) {
    const BatchRun batch(input);
    EXPECT_EQ(batch.status(), 0) << batch.err();
    EXPECT_EQ(batch.text(), "");
    EXPECT_TRUE(contains(batch.err(), "holds no requests")) << batch.err();
  }
}

// A job that is refused leaves the results of an earlier one, and no journal.
class RefusedJob : public testing::Test {
 protected:
  void SetUp() override {
    write_file(input_, good("a") + "\n");
    write_file(output_, "earlier\n");
  }
  void expect_refused(std::vector<std::string> arguments, int status, const std::vector<std::string>& words) {
    arguments.insert(arguments.begin(), "batch");
    const RunResult run = run_colibri(arguments);
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(contains(run.err, "colibri: error: batch: ")) << run.err;
    for (const std::string& word : words)
      EXPECT_TRUE(contains(run.err, word)) << word << " not in: " << run.err;
    EXPECT_EQ(read_file(output_), "earlier\n");
    EXPECT_FALSE(fs::exists(output_ + ".journal"));
  }

  TemporaryFolder folder_;
  std::string input_ = folder_.file("in.jsonl");
  std::string output_ = folder_.file("out.jsonl");
};

TEST_F(RefusedJob, ModelsThatAreNone) {
  expect_refused({demo_file("checkpoint"), input_, "-o", output_}, 1, {"checkpoint", "colibri convert"});
  expect_refused({input_, input_, "-o", output_}, 1, {input_, "colibri convert"});
  expect_refused({folder_.file("none"), input_, "-o", output_}, 1, {folder_.file("none"), "does not exist"});
  expect_refused({folder_.path(), input_, "-o", output_}, 1, {folder_.path(), "colibri convert"});
}

TEST_F(RefusedJob, InputsThatAreNone) {
  expect_refused({demo_model(), folder_.file("none"), "-o", output_}, 1,
                 {folder_.file("none"), "check the path"});
  expect_refused({demo_model(), folder_.path(), "-o", output_}, 1, {"folder"});
  if (::geteuid() != 0) {  // root reads everything
    ::chmod(input_.c_str(), 0);
    expect_refused({demo_model(), input_, "-o", output_}, 1, {input_, "Permission denied"});
  }
  write_file(input_, good("same") + "\n" + good("other") + "\n" + good("same") + "\n");
  expect_refused({demo_model(), input_, "-o", output_}, 1, {"\"same\"", "lines 0 and 2"});
}

TEST_F(RefusedJob, OutputsThatCannotBe) {
  const std::string before = read_file(input_);
  expect_refused({demo_model(), input_, "-o", input_}, 1, {"overwrite the requests"});
  EXPECT_EQ(read_file(input_), before);
  expect_refused({demo_model(), input_, "-o", folder_.file("no/out")}, 1, {folder_.file("no/out")});
  expect_refused({demo_model(), input_, "-o", output_, "--profile", folder_.file("no/p")}, 1,
                 {folder_.file("no/p")});
  expect_refused({demo_model(), input_, "-o", output_, "--trace-routing", folder_.file("no/t")}, 1,
                 {folder_.file("no/t")});
  expect_refused({demo_model(), input_, "-o", folder_.path()}, 1, {folder_.path()});
}

// No slip of a flag destroys a file of the same run, of the model, or of somebody else.
TEST_F(RefusedJob, FilesThatWouldBeLost) {
  const std::string before = read_file(input_);
  expect_refused({demo_model(), input_, "-o", output_, "--profile", input_}, 1, {"the profile", "the requests"});
  expect_refused({demo_model(), input_, "-o", output_, "--trace-routing", input_}, 1,
                 {"the routing trace", "the requests"});
  expect_refused({demo_model(), input_, "-o", output_, "--profile", output_}, 1, {"the results", "the profile"});
  expect_refused({demo_model(), input_, "-o", output_, "--trace-routing", output_}, 1,
                 {"the results", "the routing trace"});
  // The same file by another name.
  expect_refused({demo_model(), input_, "-o", output_, "--profile", folder_.path() + "/./in.jsonl"}, 1,
                 {"the requests"});
  EXPECT_EQ(read_file(input_), before);
  for (const char* flag : {"-o", "--profile", "--trace-routing"}) {
    expect_refused({demo_model(), input_, flag, demo_model() + "/model.bin"}, 1, {"the model's folder"});
  }
  const std::string notes = folder_.file("notes.txt");
  write_file(notes, "precious notes\n");
  expect_refused({demo_model(), input_, "-o", notes}, 1, {"not a results file", "--force"});
  EXPECT_EQ(read_file(notes), "precious notes\n");
}

TEST_F(RefusedJob, FlagsThatAreWrong) {
  expect_refused({demo_model(), input_, "-o", output_, "--in-oder"}, 2, {"--in-oder", "--in-order"});
  expect_refused({demo_model(), input_, "-o", output_, "--task", "chat"}, 2, {"--task"});
  expect_refused({demo_model(), input_, "--in-order"}, 2, {"-o FILE"});
  expect_refused({demo_model(), input_, "--resume"}, 2, {"-o FILE"});
  expect_refused({demo_model(), "-", "-o", output_, "--resume"}, 2, {"--resume", "save it to a file"});
  expect_refused({demo_model(), input_, "-o", output_, "--resume", "--force"}, 2, {"--force"});
}

TEST_F(RefusedJob, PlansThatDoNotFit) {
  expect_refused({demo_model(), input_, "-o", output_, "--set", "memory.dynamic=4KiB"}, 1,
                 {"memory.dynamic", "raise"});
  expect_refused({demo_model(), input_, "-o", output_, "--set", "memory.dynamic=100TiB"}, 1, {"memory"});
  expect_refused({demo_model(), input_, "-o", output_, "--set", "steps.max_row=3"}, 1, {"pipeline"});
}

// Resuming asks for the same job: another seed would mix two jobs in one file.
TEST_F(RefusedJob, ResumingAnotherJob) {
  write_file(output_, "this is no result\n");
  const RunResult run = run_colibri({"batch", demo_model(), input_, "-o", output_, "--resume"});
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(contains(run.err, "does not hold results of this job")) << run.err;
  EXPECT_EQ(read_file(output_), "this is no result\n");
}

TEST_F(RefusedJob, ANamedPipeIsReadAsItComes) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_file(pipe, good("a") + "\n" + good("a") + "\n" + good("b") + "\n"); });
  const RunResult run = run_colibri({"batch", demo_model(), pipe});
  writer.join();
  EXPECT_EQ(run.status, 3) << run.err;  // an id that comes again cannot be seen before
  const auto results = by_index(run.out);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results.at(0)["tokens"], results.at(2)["tokens"]);
  EXPECT_TRUE(contains(results.at(1)["error"]["message"], "same id"));
}

}  // namespace
}  // namespace colibri::test
