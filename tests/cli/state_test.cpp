// What a job leaves for later ones, and the figures of a profile that compare its reads with what they could
// be; against what the test reads out of the routing trace itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.push_back(entry.path().filename());
  return names;
}

const Json& fetch_metrics(const Json& profile) {
  for (const Json& stage : profile.at("stages")) {
    if (stage.at("kind") == "fetch") return stage.at("metrics");
  }
  ADD_FAILURE() << "no fetch";
  return profile;
}

// How often each (layer, expert) was demanded, once a visit.
struct Demands {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> of;
  std::uint64_t slots = 0, transit = 0, record_bytes = 0, visits = 0;

  explicit Demands(const std::string& trace) {
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> seen;
    std::set<std::uint64_t> serials;
    for (const Json& line : parse_jsonl(read_file(trace))) {
      if (!line.contains("visit")) {
        slots = line.at("slots").get<std::uint64_t>();
        transit = line.at("transit").get<std::uint64_t>();
        record_bytes = line.at("record_bytes").get<std::uint64_t>();
        continue;
      }
      const auto visit = line.at("visit").get<std::uint64_t>(), layer = line.at("layer").get<std::uint64_t>();
      serials.insert(visit);
      for (const Json& expert : line.at("experts")) {
        const auto id = expert.get<std::uint64_t>();
        if (seen.emplace(visit, layer, id).second) ++of[{layer, id}];
      }
    }
    visits = serials.size();
  }
  std::set<std::uint64_t> layers() const {
    std::set<std::uint64_t> all;
    for (const auto& [record, count] : of) all.insert(record.first);
    return all;
  }
  // Hits when the likeliest `places` of each layer stay from their first use on.
  std::uint64_t hits_of_most_used() const {
    std::uint64_t hits = 0, ordinal = 0;
    const std::uint64_t places = slots - transit, layer_count = layers().size();
    for (const std::uint64_t layer : layers()) {
      std::vector<std::uint64_t> counts;
      for (const auto& [record, count] : of) {
        if (record.first == layer) counts.push_back(count);
      }
      std::sort(counts.rbegin(), counts.rend());
      counts.resize(std::min<std::size_t>(counts.size(),
                                          places / layer_count + (ordinal++ < places % layer_count ? 1 : 0)));
      for (const std::uint64_t count : counts) hits += count - 1;
    }
    return hits;
  }
  // Reads when the most demanded records of all layers stay from their first use on.
  std::uint64_t floor_reads() const {
    std::vector<std::uint64_t> counts;
    for (const auto& [record, count] : of) counts.push_back(count);
    std::sort(counts.rbegin(), counts.rend());
    std::uint64_t reads = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) reads += i < slots - transit ? 1 : counts[i];
    return reads;
  }
};

class State : public ::testing::Test {
 protected:
  // A job in which nothing depends on when reads end.
  Json run(std::vector<std::string> flags, std::string* err = nullptr, const RunOptions& options = {}) {
    std::vector<std::string> all = {
        "--max-rows", max_rows_, "--experts-memory",  "25%",   "--profile",
        profile_,     "--set",   "steps.in_flight=1", "--set", "stages.predict.method=" + method_};
    all.insert(all.end(), flags.begin(), flags.end());
    const BatchRun batch(jsonl(short_requests(6, 16)), all, demo_model(), options);
    EXPECT_EQ(batch.status(), 0) << batch.err();
    if (err != nullptr) *err = batch.err();
    if (results_.empty()) results_ = texts(batch);
    EXPECT_EQ(texts(batch), results_);
    return Json::parse(read_file(profile_));
  }
  static std::map<std::uint64_t, std::string> texts(const BatchRun& batch) {
    std::map<std::uint64_t, std::string> all;
    for (const auto& [index, result] : batch.results()) all[index] = result.at("text").dump();
    return all;
  }

  TemporaryFolder folder_;
  std::string max_rows_ = "24", method_ = "none";
  const std::string profile_ = folder_.file("profile.json"), state_ = folder_.file("state/of/models");
  std::map<std::uint64_t, std::string> results_;
};

// The job that follows begins with the best records of the one before.
TEST_F(State, UsageOfOneJobPinsRecordsOfTheNext) {
  const std::string trace = folder_.file("trace.jsonl");
  const std::vector<std::string> flags = {
      "--state-dir", state_, "--set", "stages.fetch.policy=pinned", "--set", "stages.fetch.prewarm=false"};
  std::vector<std::string> traced = flags;
  traced.insert(traced.end(), {"--trace-routing", trace});
  const Json first = run(traced), second = run(flags);
  ASSERT_EQ(files_in(state_).size(), 1U);
  EXPECT_TRUE(files_in(state_)[0].starts_with("usage-") && files_in(state_)[0].ends_with(".bin"));
  const Demands demands(trace);
  ASSERT_LT(demands.visits / demands.layers().size(), 256U) << "counts are halved then";
  EXPECT_EQ(second.at("hits").get<std::uint64_t>(), demands.hits_of_most_used());
  EXPECT_NE(first.at("hits"), second.at("hits"));
}

TEST_F(State, PrewarmIsCountedApart) {
  const Json first = run({"--state-dir", state_});
  EXPECT_EQ(first.at("prewarm_bytes"), 0);
  const Json second = run({"--state-dir", state_});
  EXPECT_GT(second.at("prewarm_bytes").get<std::uint64_t>(), 0U);
  EXPECT_EQ(second.at("bytes_read"), second.at("distinct_bytes"));
  EXPECT_EQ(second.at("reads_per_visit"), 1.0);
  EXPECT_EQ(run({"--state-dir", state_, "--set", "stages.fetch.prewarm=false"}).at("prewarm_bytes"), 0);
}

TEST_F(State, ADamagedFileIsOneWarning) {
  run({"--state-dir", state_});
  const std::string file = state_ + "/" + files_in(state_).at(0), good = read_file(file);
  const std::string damaged[] = {"", good.substr(0, good.size() / 2), good + "x",
                                 std::string(good.size(), 'z'),
                                 std::string(good).replace(100, 1, 1, static_cast<char>(good[100] ^ 1))};
  for (const std::string& content : damaged) {
    write_file(file, content);
    std::string err;
    EXPECT_EQ(run({"--state-dir", state_}, &err).at("prewarm_bytes"), 0);
    EXPECT_TRUE(contains(err, "the file of used experts ")) << err;
    EXPECT_TRUE(contains(err, file)) << err;
    EXPECT_GT(run({"--state-dir", state_}, &err).at("prewarm_bytes").get<std::uint64_t>(), 0U);
    EXPECT_FALSE(contains(err, "used experts")) << "it was written anew";
  }
}

TEST_F(State, GoesWhereItIsToldTo) {
  RunOptions nowhere{.environment = {{"XDG_CACHE_HOME", ""}}};
  RunOptions cache{.environment = {{"XDG_CACHE_HOME", folder_.file("cache")}}};
  RunOptions variable{.environment = {{"COLIBRI_STATE_DIR", state_}}};
  run({}, nullptr, nowhere);
  EXPECT_EQ(files_in(folder_.path()).size(), 1U) << "the profile alone";
  run({"--state-dir", ""}, nullptr, cache);
  EXPECT_FALSE(fs::exists(folder_.file("cache")));
  run({}, nullptr, cache);
  EXPECT_EQ(files_in(folder_.file("cache/colibri")).size(), 1U);
  run({}, nullptr, variable);
  EXPECT_EQ(files_in(state_).size(), 1U);
  // What cannot be written is said, and the job has succeeded all the same.
  write_file(folder_.file("file"), "");
  std::string err;
  run({"--state-dir", folder_.file("file/below")}, &err);
  EXPECT_TRUE(contains(err, "cannot make the state folder: ")) << err;
}

TEST_F(State, FiguresOfReadsAreThoseOfTheTrace) {
  const std::string trace = folder_.file("trace.jsonl");
  const Json profile = run({"--state-dir", "", "--trace-routing", trace});
  const Demands demands(trace);
  const auto bytes_read = profile.at("bytes_read").get<std::uint64_t>();
  EXPECT_EQ(profile.at("floor_bytes").get<std::uint64_t>(), demands.floor_reads() * demands.record_bytes);
  EXPECT_NEAR(
      profile.at("read_over_floor").get<double>(),
      static_cast<double>(bytes_read) / static_cast<double>(demands.floor_reads() * demands.record_bytes),
      1e-6);
  EXPECT_NEAR(
      profile.at("bytes_per_generated_token").get<double>() * profile.at("generated_tokens").get<double>(),
      static_cast<double>(bytes_read), 1);
  const RunResult replay = run_colibri(
      {"replay", trace, "--policy", "belady", "--slots", std::to_string(demands.slots), "--json"});
  EXPECT_EQ(profile.at("belady_hits"), Json::parse(replay.out).at("results").at(0).at("hits"));
  EXPECT_GE(profile.at("belady_hits").get<std::uint64_t>(), profile.at("hits").get<std::uint64_t>());
  EXPECT_TRUE(run({"--state-dir", ""}).at("belady_hits").is_null()) << "no trace, no future";
}

TEST_F(State, BytesOfSmallStepsAreThoseTheyDemanded) {
  // Six requests never fill half of 2048 rows; a step of one row is full.
  max_rows_ = "2048";
  const Json small = run({"--state-dir", ""});
  EXPECT_EQ(small.at("small_step_bytes"), small.at("bytes_read"));
  EXPECT_GT(small.at("small_step_seconds").get<double>(), 0);
  EXPECT_LE(small.at("small_step_seconds").get<double>(), small.at("wall_seconds").get<double>());
  max_rows_ = "1";
  const Json full = run({"--state-dir", ""});
  EXPECT_EQ(full.at("small_step_bytes"), 0);
  // Hints that were used count, too; wasted ones were demanded by nobody.
  max_rows_ = "2048";
  method_ = "next_router";
  const Json hinted = run({"--state-dir", ""});
  EXPECT_GT(fetch_metrics(hinted).at("hint_reads_total").get<std::uint64_t>(), 0U);
  EXPECT_EQ(hinted.at("small_step_bytes").get<std::uint64_t>() +
                hinted.at("wasted_hint_bytes").get<std::uint64_t>(),
            hinted.at("bytes_read").get<std::uint64_t>());
}

}  // namespace
}  // namespace colibri::test
