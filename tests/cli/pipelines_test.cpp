// The pipeline files in configs, run as a user runs them, on the demo model: each does what it is for, and
// results are equal to the bit where the pipelines differ only in how they work.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "io/checkpoint/safetensors.hpp"
#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

std::string config(const std::string& name) { return COLIBRI_TEST_DATA "/../configs/" + name; }

// What must be equal, by line of input: all of a result but its place in the file.
std::map<std::uint64_t, std::string> answers(const BatchRun& run) {
  std::map<std::uint64_t, std::string> all;
  for (const auto& [index, result] : run.results()) all[index] = result.dump();
  return all;
}

std::string some_requests() {
  std::vector<Json> requests = demo_requests();
  requests.resize(12);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i]["max_tokens"] = 12;
    requests[i]["logprobs"] = 2;
    if (i % 3 == 1) requests[i]["temperature"] = 0.8;
  }
  return jsonl(requests);
}

TEST(Pipelines, EachOpensWithWhatItIsFor) {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(config(""))) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const std::string text = read_file(entry.path());
    EXPECT_TRUE(text.starts_with("# ")) << entry.path();
    // Not every machine has what a file is for; this one has two NUMA nodes.
    const RunResult checked = run_colibri(
        {"check", entry.path(), "--machine", COLIBRI_TEST_DATA "/topology/machines/two_nodes.xml"});
    EXPECT_EQ(checked.status, 0) << checked.err;
  }
  EXPECT_GE(files, 4U);
}

TEST(Pipelines, BatchMinimalAndScoreAnswerEqually) {
  for (const char* task : {"generate", "score", "embed"}) {
    const std::string requests = some_requests();
    const auto expected = answers(BatchRun(requests, {"--task", task, "--experts-memory", "25%"}));
    ASSERT_EQ(expected.size(), 12U);
    for (const char* file : {"batch.yaml", "minimal.yaml", "score.yaml"}) {
      const BatchRun run(requests, {"--task", task, "--pipeline", config(file), "--experts-memory", "25%"});
      EXPECT_EQ(run.status(), 0) << run.err();
      EXPECT_EQ(answers(run), expected) << file << " " << task;
    }
  }
}

// The smallest pipeline is the smallest: without any one of its stages it has problems.
TEST(Pipelines, MinimalLacksNothingAndHasNothingMore) {
  const std::string text = read_file(config("minimal.yaml"));
  EXPECT_FALSE(contains(text, "kind: predict"));
  const TemporaryFolder folder;
  std::istringstream lines(text);
  std::vector<std::string> stages;
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find(": {kind: "); at != std::string::npos)
      stages.push_back(line.substr(2, at - 2));
  }
  ASSERT_EQ(stages.size(), 11U);
  for (const std::string& stage : stages) {
    std::istringstream all(text);
    std::string without;
    for (std::string line; std::getline(all, line);) {
      const bool of_stage = line.starts_with("  " + stage + ": ") || contains(line, "from: " + stage + ".") ||
                            contains(line, "to: " + stage + ".");
      if (!of_stage) without += line + "\n";
    }
    write_file(folder.file("without.yaml"), without);
    EXPECT_EQ(run_colibri({"check", folder.file("without.yaml")}).status, 1) << stage;
  }
}

// The documents of the held-out text, against what transformers computed.
TEST(Pipelines, ScoreMatchesTheGoldenValues) {
  const Json golden = Json::parse(read_file(demo_file("golden.json")));
  std::vector<Json> requests;
  std::istringstream text(read_file(demo_file("heldout.txt")));
  for (std::string document; std::getline(text, document, '\f');)
    requests.push_back({{"id", std::to_string(requests.size())}, {"prompt", document}});
  ASSERT_EQ(requests.size(), golden["heldout"].size());
  const BatchRun run(jsonl(requests), {"--task", "score", "--pipeline", config("score.yaml")});
  ASSERT_EQ(run.status(), 0) << run.err();
  double total = 0;
  std::size_t scored = 0;
  for (const auto& [index, result] : run.results()) {
    double sum = 0;
    for (const Json& logprob : result["prompt_logprobs"]) sum += logprob.get<double>();
    scored += result["prompt_logprobs"].size();
    EXPECT_NEAR(sum, golden["heldout"][index]["logprob_sum"].get<double>(), 0.05) << "document " << index;
    total += sum;
  }
  EXPECT_EQ(scored, golden["scored_tokens"].get<std::size_t>());
  EXPECT_NEAR(std::exp(-total / static_cast<double>(scored)), golden["perplexity"].get<double>(), 1e-3);
}

// A file of prompts goes through the model in one step when memory allows; where the number of rows is given,
// fewer rows mean more reads.
TEST(Pipelines, ScoringReadsLessInLargerSteps) {
  std::vector<Json> requests;
  std::istringstream text(read_file(demo_file("heldout.txt")));
  for (std::string document; std::getline(text, document, '\f');)
    requests.push_back({{"id", std::to_string(requests.size())}, {"prompt", document}});
  const TemporaryFolder folder;
  const auto profile_with = [&](const std::string& rows) {
    const BatchRun run(jsonl(requests),
                       {"--task", "score", "--pipeline", config("score.yaml"), "--experts-memory", "min",
                        "--max-rows", rows, "--profile", folder.file("profile.json")});
    EXPECT_EQ(run.status(), 0) << run.err();
    return Json::parse(read_file(folder.file("profile.json")));
  };
  const Json small = profile_with("512"), large = profile_with("2048"), whole = profile_with("auto");
  EXPECT_LT(large["steps"].get<double>(), small["steps"].get<double>() / 2);
  EXPECT_LT(large["bytes_read"].get<double>(), small["bytes_read"].get<double>() / 2);
  EXPECT_EQ(whole["steps"], 1U);
  EXPECT_LE(whole["bytes_read"].get<std::uint64_t>(),
            std::filesystem::file_size(std::filesystem::path(demo_model()) / "experts.bin"));
}

// The built-in pipeline with a tap in the edge of waves from `from` to `to`.
std::string tapped_pipeline(const std::string& from, const std::string& to, const std::string& params) {
  std::string yaml = read_file(config("batch.yaml"));
  const std::string edge = "  - {from: " + from + ", to: " + to + "}\n";
  yaml.replace(yaml.find(edge), edge.size(),
               "  - {from: " + from + ", to: tap.waves}\n  - {from: tap.waves, to: " + to + "}\n");
  yaml.insert(yaml.find("  route: {"), "  tap: {kind: tap" + params + "}\n");
  return yaml;
}

// A tap and --trace-routing tell the same, and a job with a tap answers what it answers without.
TEST(Pipelines, ATapTellsWhatTheTraceTells) {
  const TemporaryFolder folder;
  write_file(folder.file("tapped.yaml"),
             tapped_pipeline("route.waves", "combine.waves",
                             ", what: routes, layers: \"1,4-5\", file: " + folder.file("tap")));
  const BatchRun tapped(some_requests(), {"--pipeline", folder.file("tapped.yaml"), "--trace-routing",
                                          folder.file("trace"), "--experts-memory", "25%"});
  ASSERT_EQ(tapped.status(), 0) << tapped.err();
  EXPECT_EQ(answers(tapped), answers(BatchRun(some_requests(), {"--experts-memory", "25%"})));

  using Key = std::tuple<std::string, int, int>;
  const auto rows = [](const std::vector<Json>& lines, bool all) {
    std::map<Key, std::string> found;
    for (const Json& line : lines) {
      const int layer = line.value("layer", -1);
      if (!line.contains("id") || (!all && layer != 1 && layer < 4)) continue;
      found[{line["id"], line["position"], layer}] = line["experts"].dump() + line["weights"].dump();
    }
    return found;
  };
  const auto tap = rows(parse_jsonl(read_file(folder.file("tap"))), true);
  EXPECT_GT(tap.size(), 100U);
  EXPECT_EQ(tap, rows(parse_jsonl(read_file(folder.file("trace"))), false));
}

TEST(Pipelines, ATapNeverWritesOverOtherFiles) {
  const TemporaryFolder folder;
  const std::string yaml = tapped_pipeline("attend.routed", "route.waves", "");
  write_file(folder.file("p.yaml"), yaml);
  write_file(folder.file("in"), some_requests());
  write_file(folder.file("precious"), "not the work of a tap\n");
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  const std::string weights = read_file(demo_model() + "/experts.bin");
  for (const auto& [file, words] :
       {std::pair{folder.file("in"), "stages.tap.file would overwrite the requests"},
        std::pair{folder.file("out"), "stages.tap.file"},
        std::pair{folder.file("p.yaml"), "stages.tap.file would overwrite the pipeline"},
        std::pair{folder.file("out.journal"), "stages.tap.file would overwrite the journal of the results"},
        std::pair{folder.file("precious"), "exists and was written by something else"},
        std::pair{folder.file("pipe"), "is no regular file"},
        std::pair{demo_model() + "/experts.bin", "into the model's folder"}}) {
    const RunResult run =
        run_colibri({"batch", demo_model(), folder.file("in"), "-o", folder.file("out"), "--pipeline",
                     folder.file("p.yaml"), "--set", "stages.tap.file=" + file, "--force"});
    EXPECT_EQ(run.status, 1);
    EXPECT_TRUE(contains(run.err, words)) << run.err;
  }
  EXPECT_EQ(read_file(folder.file("p.yaml")), yaml);
  EXPECT_EQ(read_file(folder.file("precious")), "not the work of a tap\n");
  // What a tap has written may be written again.
  for (int round = 0; round < 2; ++round) {
    const RunResult run =
        run_colibri({"batch", demo_model(), folder.file("in"), "-o", folder.file("out"), "--pipeline",
                     folder.file("p.yaml"), "--set", "stages.tap.file=" + folder.file("tapped"), "--force"});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  EXPECT_EQ(read_file(folder.file("in")), some_requests());
  EXPECT_TRUE(read_file(demo_model() + "/experts.bin") == weights);
}

// A stage that does not start is found when all else is in order; the corrected command then runs as it is.
TEST(Pipelines, AFailedStartCostsNothing) {
  const TemporaryFolder folder;
  write_file(folder.file("in"), some_requests());
  write_file(folder.file("p.yaml"), tapped_pipeline("attend.routed", "route.waves", ""));
  const std::string earlier = "{\"earlier\": 1}\n", trace = folder.file("trace");
  for (const bool overwrites : {false, true}) {
    const std::string output = folder.file(overwrites ? "earlier" : "new");
    if (overwrites) write_file(output, earlier);
    write_file(trace, earlier);
    const auto run = [&](const std::string& tap) {
      return run_colibri({"batch", demo_model(), folder.file("in"), "-o", output, "--trace-routing", trace,
                          "--pipeline", folder.file("p.yaml"), "--set", "stages.tap.file=" + tap});
    };
    const RunResult failed = run(folder.file("none/tap"));
    EXPECT_EQ(failed.status, 1);
    EXPECT_TRUE(contains(failed.err, "stage tap: cannot create the file of a tap")) << failed.err;
    EXPECT_EQ(fs::exists(output), overwrites);
    EXPECT_FALSE(fs::exists(output + ".journal"));
    EXPECT_EQ(read_file(trace), earlier);
    if (overwrites) {
      EXPECT_EQ(read_file(output), earlier);
    }
    const RunResult corrected = run(folder.file("tap"));
    EXPECT_EQ(corrected.status, 0) << corrected.err;
    EXPECT_EQ(by_index(read_file(output)), BatchRun(some_requests()).results());
    EXPECT_NE(read_file(trace), earlier);
  }
}

TEST(Pipelines, BatchRefusesHiddenStatesAndLeavesNothing) {
  const TemporaryFolder folder;
  write_file(folder.file("in"), some_requests());
  const std::vector<std::string> command = {"batch", demo_model(), folder.file("in"), "-o",
                                            folder.file("out")};
  std::vector<std::string> wrong = command;
  wrong.insert(wrong.end(), {"--pipeline", config("block.yaml")});
  const RunResult refused = run_colibri(wrong);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "run it with: colibri run ")) << refused.err;
  EXPECT_EQ(run_colibri(command).status, 0);
}

}  // namespace
}  // namespace colibri::test
