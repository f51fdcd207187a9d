// `colibri replay` over the trace of a real job, against what the test reads out of the same file.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

struct Trace {
  TemporaryFolder folder;
  std::string file = folder.file("trace.jsonl");
  std::uint64_t demands = 0, distinct = 0;

  Trace() {
    const BatchRun run(jsonl(compared_requests()),
                       {"--experts-memory", "25%", "--max-rows", "64", "--trace-routing", file, "--state-dir",
                        "", "--set", "stages.fetch.inflight_bytes=4096"});
    EXPECT_EQ(run.status(), 0) << run.err();
    std::map<std::uint64_t, std::set<std::pair<std::uint64_t, std::uint64_t>>> visits;
    std::set<std::pair<std::uint64_t, std::uint64_t>> all;
    for (const Json& line : parse_jsonl(read_file(file))) {
      if (!line.contains("visit")) continue;
      for (const Json& expert : line.at("experts")) {
        const std::pair<std::uint64_t, std::uint64_t> record(line.at("layer").get<std::uint64_t>(),
                                                             expert.get<std::uint64_t>());
        visits[line.at("visit").get<std::uint64_t>()].insert(record);
        all.insert(record);
      }
    }
    for (const auto& [serial, records] : visits) demands += records.size();
    distinct = all.size();
  }
};

TEST(Replay, CountsAndRanksThePolicies) {
  const Trace trace;
  const RunResult result = run_colibri({"replay", trace.file, "--slots", "10,25,50%", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::map<std::string, std::vector<std::uint64_t>> hits;
  const Json parsed = Json::parse(result.out);
  for (const Json& one : parsed.at("results")) {
    EXPECT_EQ(one.at("demands").get<std::uint64_t>(), trace.demands);
    hits[one.at("policy").get<std::string>()].push_back(one.at("hits").get<std::uint64_t>());
  }
  ASSERT_EQ(hits.size(), 6U);
  for (std::size_t i = 0; i < 3; ++i) {
    // A list over all layers forgets a record before its layer comes again, unless half of all stay.
    EXPECT_LT(hits["lru"][i] * (i < 2 ? 10 : 1), hits["probability"][i]);
    EXPECT_LT(hits["lru"][i], hits["lfu"][i]);
    EXPECT_LE(hits["lfu"][i], hits["probability"][i]);
    EXPECT_LE(hits["probability"][i], hits["fixed"][i]);
    for (const auto& [policy, counts] : hits) EXPECT_LE(counts[i], hits["belady"][i]) << policy;
  }
  const RunResult all = run_colibri({"replay", trace.file, "--slots", "100%", "--policy", "lru", "--json"});
  EXPECT_EQ(Json::parse(all.out).at("results").at(0).at("hits").get<std::uint64_t>(),
            trace.demands - trace.distinct);
  // The table says the same in words.
  EXPECT_TRUE(contains(run_colibri({"replay", trace.file}).out, "probability"));
}

// What a job hits does not depend on when its reads end: the trace of one job says what others with more or
// fewer slots hit, to the record.
TEST(Replay, SaysExactlyWhatJobsHit) {
  const TemporaryFolder folder;
  const std::string requests = jsonl(short_requests(8, 16));
  const std::string trace = folder.file("trace.jsonl"), profile = folder.file("profile.json");
  const std::vector<std::string> flags = {"--max-rows",  "24",
                                          "--wave-rows", "7",
                                          "--set",       "steps.in_flight=1",
                                          "--state-dir", "",
                                          "--set",       "stages.predict.method=none",
                                          "--profile",   profile};
  bool traced = false;
  std::set<std::uint64_t> different;
  for (const char* experts : {"10%", "25%", "50%"}) {
    for (const char* policy : {"probability", "pinned"}) {
      std::vector<std::string> all = flags;
      all.insert(all.end(),
                 {"--experts-memory", experts, "--set", std::string("stages.fetch.policy=") + policy});
      if (!traced) all.insert(all.end(), {"--trace-routing", trace});
      traced = true;
      const BatchRun run(requests, all);
      ASSERT_EQ(run.status(), 0) << run.err();
      const Json live = Json::parse(read_file(profile));
      std::string slots;
      for (const Json& stage : live.at("stages")) {
        if (stage.at("kind") == "fetch")
          slots = std::to_string(stage.at("metrics").at("slots").get<std::uint64_t>());
      }
      const RunResult replay = run_colibri({"replay", trace, "--slots", slots, "--policy", policy, "--json"});
      ASSERT_EQ(replay.status, 0) << replay.err;
      const Json said = Json::parse(replay.out).at("results").at(0);
      EXPECT_EQ(said.at("hits"), live.at("hits")) << policy << " " << experts;
      EXPECT_EQ(said.at("demands"), live.at("demands")) << policy << " " << experts;
      EXPECT_EQ(said.at("read_bytes"), live.at("bytes_read")) << policy << " " << experts;
      different.insert(live.at("hits").get<std::uint64_t>());
    }
  }
  EXPECT_EQ(different.size(), 6U) << "policies and slots change what is hit";
}

TEST(Replay, WrongInputIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.file("trace.jsonl");
  const std::string header =
      R"({"colibri_routing_trace": 1, "layers": 2, "experts": 4, "experts_per_token": 2, "record_bytes": 4096})"
      "\n";
  const struct {
    std::string content, expected;
  } cases[] = {
      {"", "the file is empty: "},
      {"{}\n", ":1: is no header of a routing trace; write one with `colibri batch --trace-routing FILE`"},
      {R"({"colibri_routing_trace": 2})", ":1: is a trace of version 2; this program reads version 1"},
      {R"({"colibri_routing_trace": 1, "layers": 2, "experts": 0, "record_bytes": 1})", "'experts' is 0"},
      {R"({"colibri_routing_trace": 1, "layers": 99999999, "experts": 4, "record_bytes": 1})",
       ":1: 'layers' is the number 99999999; expected an integer from 0 to 65536"},
      {header, "the trace has no visits"},
      {header + "{\"visit\": 1, \"layer\": 2, \"experts\": [0]}\n",
       ":2: 'layer' is the number 2; expected an integer from 0 to 1"},
      {header + "{\"visit\": 1, \"layer\": 0}\n", ":2: 'experts' is no list"},
      {header + "{\"visit\": 1, \"layer\": 0, \"experts\": [4]}\n", "expected an integer below 4"},
      {header +
           "{\"visit\": 1, \"layer\": 0, \"experts\": [1]}\n{\"visit\": 1, \"layer\": 1, \"experts\": [1]}\n",
       ":3: visit 1 is in layer 1, and was in layer 0"},
      {header + "{\"visit\": 1, \"layer\": 0, \"exp", ":2: "},
  };
  for (const auto& one : cases) {
    write_file(file, one.content);
    const RunResult result = run_colibri({"replay", file});
    EXPECT_EQ(result.status, 1) << one.content;
    EXPECT_TRUE(contains(result.err, one.expected)) << result.err;
  }
  EXPECT_EQ(run_colibri({"replay", folder.file("none.jsonl")}).status, 1);
  const RunResult endless = run_colibri({"replay", "/dev/zero"});
  EXPECT_EQ(endless.status, 1);
  EXPECT_TRUE(contains(endless.err, "no file of lines")) << endless.err;
  write_file(file, header + "{\"visit\": 1, \"layer\": 0, \"experts\": [1]}\n");
  EXPECT_EQ(run_colibri({"replay", file, "--slots", "4"}).status, 0);
  for (const char* slots : {"5", "5000000000", "10%,5000000000"}) {
    const RunResult result = run_colibri({"replay", file, "--slots", slots});
    EXPECT_EQ(result.status, 1) << slots;
    EXPECT_TRUE(contains(result.err, "more slots than the trace has records: ")) << result.err;
  }
  for (const char* slots : {"x", "0", "0%", "101%", "1,,2", "-1"}) {
    EXPECT_EQ(run_colibri({"replay", file, "--slots", slots}).status, 2) << slots;
  }
}

}  // namespace
}  // namespace colibri::test
