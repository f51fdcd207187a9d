// Everything that decides what is read, when and where to, combined: results stay equal to the bit to those
// of another implementation and of each other, and no record is read twice for a visit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"

namespace colibri::testing {
namespace {

struct Factor {
  std::string setting;
  std::vector<std::string> values;
};

const std::vector<Factor>& factors() {
  static const std::vector<Factor> all = {
      {"stages.fetch.policy", {"probability", "pinned"}},
      {"stages.predict.method", {"none", "next_router", "sweep", "auto"}},
      {"stages.predict.depth", {"1", "2", "3"}},
      {"stages.fetch.backend", {"io_uring", "pread"}},
      {"stages.fetch.direct", {"auto", "off"}},
      {"stages.fetch.lanes", {"1", "4", "16"}},
      {"memory.experts", {"min", "10%", "25%", "50%", "100%"}},
      {"steps.in_flight", {"1", "2"}},
      {"steps.wave_rows", {"3", "16"}},
  };
  return all;
}

using Row = std::vector<std::size_t>;       // [factors] which value
using Pair = std::array<std::size_t, 4>;    // two factors and their values
constexpr std::size_t kCombinations = 104;  // at scale 1
constexpr std::size_t kFewest = 30;         // at any scale; they hold every pair

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (std::size_t b = a + 1; b < row.size(); ++b) pairs.insert({a, row[a], b, row[b]});
  }
  return pairs;
}

// Of several random rows the one with most new pairs, over and over; rows differ.
std::vector<Row> combinations() {
  std::mt19937_64 random(1);
  std::vector<Row> rows;
  std::set<Pair> covered;
  while (rows.size() < kCombinations) {
    Row best;
    std::size_t most = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
      Row row;
      for (const Factor& factor : factors()) row.push_back(random() % factor.values.size());
      if (std::find(rows.begin(), rows.end(), row) != rows.end()) continue;
      const std::set<Pair> pairs = pairs_of(row);
      const auto fresh = static_cast<std::size_t>(std::count_if(
          pairs.begin(), pairs.end(), [&covered](const Pair& pair) { return !covered.contains(pair); }));
      if (best.empty() || fresh > most) {
        best = row;
        most = fresh;
      }
    }
    covered.merge(pairs_of(best));
    rows.push_back(best);
  }
  return rows;
}

std::size_t combinations_to_run() {
  const auto scaled =
      static_cast<std::size_t>(std::lround(static_cast<double>(kCombinations) * test_scale()));
  return std::clamp(scaled, kFewest, kCombinations);
}

TEST(Combinations, FewHoldEveryPairOfValues) {
  const std::vector<Row> rows = combinations();
  EXPECT_EQ(std::set<Row>(rows.begin(), rows.end()).size(), kCombinations);
  std::set<Pair> covered;
  for (std::size_t i = 0; i < kFewest; ++i) covered.merge(pairs_of(rows[i]));
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < factors().size(); ++a) {
    for (std::size_t b = a + 1; b < factors().size(); ++b) {
      pairs += factors()[a].values.size() * factors()[b].values.size();
    }
  }
  EXPECT_EQ(covered.size(), pairs);
}

// Six prompts of the demo's goldens, one of each task.
struct DemoJob {
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> greedy;  // what transformers generated; empty for other tasks

  DemoJob() {
    std::ifstream file(std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/golden.json");
    const nlohmann::json golden = nlohmann::json::parse(file);
    for (std::size_t i = 0; i < 8; ++i) {
      const nlohmann::json& one = golden.at("greedy").at(i);
      auto prompt = one.at("prompt_ids").get<std::vector<std::int32_t>>();
      auto generated = one.at("greedy_ids").get<std::vector<std::int32_t>>();
      if (i >= 6) {
        requests.push_back(score_request(std::move(prompt)));
        if (i == 7) requests.back().task = Task::embed;
        greedy.emplace_back();
        continue;
      }
      generated.resize(std::min<std::size_t>(generated.size(), 12));
      requests.push_back(generate_request(std::move(prompt), static_cast<std::uint32_t>(generated.size())));
      requests.back().ignore_eos = true;
      requests.back().logprobs = 2;
      requests.back().logprobs_given = true;
      greedy.push_back(std::move(generated));
    }
  }
};

TEST(Combinations, ResultsAreEqualToTheBitAndNothingIsReadTwice) {
  const DemoJob job;
  const std::filesystem::path model =
      container_of(std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/checkpoint",
                   "config.json", "auto");
  const std::vector<Row> rows = combinations();
  const std::size_t count = combinations_to_run();
  std::vector<std::vector<std::uint32_t>> expected;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::pair<std::string, std::string>> settings = {{"steps.max_rows", "24"}};
    std::string name;
    for (std::size_t f = 0; f < factors().size(); ++f) {
      settings.emplace_back(factors()[f].setting, factors()[f].values[rows[i][f]]);
      name += settings.back().first + "=" + settings.back().second + " ";
    }
    SCOPED_TRACE(name);
    const auto engine = open_engine(model, settings);
    ASSERT_NE(engine, nullptr);
    const JobRun run = run_job(*engine, job.requests);
    const auto bits = result_bits(run);
    if (expected.empty()) expected = bits;
    ASSERT_EQ(bits, expected);
    for (std::size_t r = 0; r < job.greedy.size(); ++r) {
      if (job.greedy[r].empty()) continue;
      EXPECT_EQ(run.results[r].tokens, job.greedy[r]) << "request " << r;
    }
    EXPECT_GT(run.report.distinct_bytes, 0U);
    EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
    EXPECT_EQ(run.report.reads_per_visit(), 1.0);
  }
  std::printf("%zu combinations\n", count);
}

}  // namespace
}  // namespace colibri::testing
