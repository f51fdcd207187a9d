// How well reads and arithmetic overlap, exactly: the demo on a drive in virtual time, its stages at fixed
// costs, for drives from ten times too slow to ten times faster than the arithmetic.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/costed_job.hpp"

namespace colibri::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

const std::filesystem::path kDemo = COLIBRI_TEST_DATA "/../configs/demo/checkpoint";

class OverlapTime : public ::testing::Test {
 protected:
  CostedRun run(const Settings& settings, const std::vector<Request>& requests, double rate,
                std::uint32_t channels = 4) const {
    return run_costed(container_, settings, requests, rate, channels);
  }
  CostedRun run_without_hints(Settings settings, const std::vector<Request>& requests, double rate,
                              std::uint32_t channels = 4) const {
    settings.emplace_back("stages.predict.method", "none");
    return run(settings, requests, rate, channels);
  }
  double balance(const Settings& settings, const std::vector<Request>& requests,
                 std::uint32_t channels = 4) const {
    return balanced_rate(container_, settings, requests, channels);
  }

  static std::vector<std::int32_t> tokens(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> all(count);
    for (std::int32_t& token : all) token = static_cast<std::int32_t>(random() % 1000);
    return all;
  }
  static std::vector<Request> prompts(std::uint32_t count) {
    std::vector<Request> all;
    for (std::uint32_t i = 0; i < count; ++i) all.push_back(score_request(tokens(64, i)));
    return all;
  }
  const std::filesystem::path container_ = container_of(kDemo, "config.json", "int8");
};

// The longer of both, and little more; and about what is possible for the slots that there are, when
// everything is foreseen. Half of the experts, and a quarter: one layer and a half, so that the drive cannot
// read far ahead.
TEST_F(OverlapTime, ManyRowsTakeTheLongerOfReadingAndComputing) {
  struct Case {
    const char* memory;
    const char* rows;
    std::uint32_t prompts;  // of 64 rows: enough, for the first step reads all that it needs
    std::vector<double> factors;
  };
  for (const Case& one : {Case{"50%", "128", 96, {0.1, 0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 10.0}},
                          Case{"50%", "256", 96, {0.85, 1.0, 1.2}}, Case{"50%", "512", 192, {1.0}},
                          Case{"25%", "128", 96, {0.1, 0.85, 1.0, 1.2, 10.0}},
                          Case{"25%", "256", 48, {1.0, 1.2}}, Case{"25%", "512", 96, {1.0}}}) {
    SCOPED_TRACE(std::string(one.memory) + ", " + one.rows + " rows");
    const Settings settings = {
        {"memory.experts", one.memory}, {"steps.max_rows", one.rows}, {"steps.wave_rows", "32"}};
    const std::vector<Request> requests = prompts(one.prompts);
    const double rate = balance(settings, requests);
    for (const double factor : one.factors) {
      Foresight foresight;
      const CostedRun times =
          run_costed(container_, settings, requests, rate * factor, 4, Foreseen::written_down, &foresight);
      EXPECT_LE(times.over_limit(), 1.08)
          << factor << " of balance: " << times.seconds() << " s, reads " << times.disk_seconds()
          << ", arithmetic " << times.compute_seconds();
      if (factor != 1.0) continue;
      const CostedRun best =
          run_costed(container_, settings, requests, rate * factor, 4, Foreseen::used, &foresight);
      EXPECT_EQ(best.job.report.wasted_hint_bytes, 0U);
      EXPECT_LE(times.seconds(), 1.03 * best.seconds()) << "with everything foreseen";
    }
  }
}

// A drive that does one read at a time pays in full for each that nobody demands; one with four channels may
// have one to spare.
TEST_F(OverlapTime, HintsNeverCostMoreThanTheyGain) {
  const std::vector<Request> many = prompts(24);
  Request one = generate_request(tokens(20, 7), 60);
  one.ignore_eos = true;
  for (const char* memory : {"10%", "25%", "50%"}) {
    const Settings settings = {
        {"memory.experts", memory}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
    for (const auto& [requests, channels] :
         {std::pair{many, 4U}, {std::vector<Request>{one}, 1U}, {std::vector<Request>{one}, 4U}}) {
      const double rate = balance(settings, requests, channels);
      for (const double factor : {0.1, 0.7, 1.0, 1.4, 10.0}) {
        const double with = run(settings, requests, rate * factor, channels).seconds();
        const double without = run_without_hints(settings, requests, rate * factor, channels).seconds();
        const std::string where = memory + (", " + std::to_string(requests.size())) + " requests, " +
                                  std::to_string(channels) + " channels, " + std::to_string(factor);
        EXPECT_LE(with, 1.02 * without) << where;
        // Near the balance a single stream gains: it alone waits for every read that nobody foresaw.
        if (requests.size() == 1 && factor >= 0.7 && factor <= 1.4) {
          EXPECT_LE(1.15 * with, without) << where;
        }
      }
    }
  }
}

// Every missing record that is demanded once, and what a fixed set of the best records would not have missed.
TEST_F(OverlapTime, SweepsReadWhatTheyMust) {
  const std::vector<Request> requests = prompts(96);
  for (const auto& [rows, steps] : {std::pair{"128", 48U}, {"256", 24U}, {"512", 12U}, {"1536", 4U}}) {
    for (const char* memory : {"25%", "50%"}) {
      const Settings settings = {
          {"memory.experts", memory}, {"steps.max_rows", rows}, {"steps.wave_rows", "32"}};
      for (const double rate : {2e8, 1e10}) {
        const RunReport report = run(settings, requests, rate).job.report;
        EXPECT_EQ(report.steps, steps);
        EXPECT_EQ(report.bytes_read, report.distinct_bytes);
        EXPECT_LE(report.read_over_floor(), 1.02)
            << rows << " rows, " << memory << " at " << rate << " bytes a second";
      }
    }
  }
}

}  // namespace
}  // namespace colibri::testing
