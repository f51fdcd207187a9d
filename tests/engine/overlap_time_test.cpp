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
  CostedRun run(const Settings& settings, const std::vector<Request>& requests, double rate) const {
    return run_costed(container_, settings, requests, rate);
  }
  CostedRun run_without_hints(Settings settings, const std::vector<Request>& requests, double rate) const {
    settings.emplace_back("stages.predict.method", "none");
    return run(settings, requests, rate);
  }
  double balance(const Settings& settings, const std::vector<Request>& requests) const {
    return balanced_rate(container_, settings, requests);
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
  const std::filesystem::path container_ = container_of(kDemo, "config.json", "auto");
};

// Half of the experts in memory, steps of 128 rows: the longer of both, and little more.
TEST_F(OverlapTime, ManyRowsTakeTheLongerOfReadingAndComputing) {
  const Settings settings = {{"memory.experts", "50%"}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
  const std::vector<Request> requests = prompts(96);
  const double rate = balance(settings, requests);
  for (const double factor : {0.1, 0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 3.0, 10.0}) {
    const CostedRun times = run(settings, requests, rate * factor);
    EXPECT_LE(times.over_limit(), 1.08) << factor << " of balance: " << times.seconds() << " s, reads "
                                        << times.disk_seconds() << ", arithmetic " << times.compute_seconds();
  }
}

// A quarter of the experts is one layer and a half: the drive cannot read far ahead. Where reading and
// computing take equally long, neither hides all of the other then.
TEST_F(OverlapTime, FewSlotsCostMostAtTheBalance) {
  const Settings settings = {{"memory.experts", "25%"}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
  const std::vector<Request> requests = prompts(48);
  const double rate = balance(settings, requests);
  for (const auto& [factor, most] :
       {std::pair{0.1, 1.03}, {0.5, 1.06}, {1.0, 1.25}, {2.0, 1.06}, {10.0, 1.03}}) {
    const CostedRun times = run(settings, requests, rate * factor);
    EXPECT_LE(times.over_limit(), most) << factor << " of balance";
  }
}

TEST_F(OverlapTime, HintsNeverCostMoreThanTheyGain) {
  const std::vector<Request> many = prompts(24);
  Request one = generate_request(tokens(20, 7), 60);
  one.ignore_eos = true;
  for (const char* memory : {"25%", "50%"}) {
    for (const auto& requests : {many, std::vector<Request>{one}}) {
      const Settings settings = {
          {"memory.experts", memory}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
      const double rate = balance(settings, requests);
      for (const double factor : {0.1, 0.5, 1.0, 2.0, 10.0}) {
        const double with = run(settings, requests, rate * factor).seconds();
        const double without = run_without_hints(settings, requests, rate * factor).seconds();
        EXPECT_LE(with, 1.02 * without) << memory << ", " << requests.size() << " requests, " << factor;
        // Near the balance a single stream gains: it alone waits for every read that nobody foresaw.
        if (requests.size() == 1 && factor == 1.0) {
          EXPECT_LE(1.15 * with, without) << memory;
        }
      }
    }
  }
}

}  // namespace
}  // namespace colibri::testing
