// A host that allows oneTBB one thread, and works with it itself: two engines give the right results beside
// its own loops, and leave its limit as it is.
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/support/session_job.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

std::size_t limit() {
  return tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
}

TEST(NarrowHost, TwoEnginesBesideItsOwnLoops) {
  const Watchdog watchdog("two engines on one thread");
  ASSERT_EQ(limit(), 1U);
  std::mutex mutex;
  std::string said;
  const std::vector<std::string> models = {"olmoe_f32", "mixtral"};
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<std::vector<std::uint32_t>>> expected;
  for (const std::string& model : models) {
    EngineOptions options;
    options.log = [&](std::string line) {
      const std::lock_guard lock(mutex);
      said += line + "\n";
    };
    auto engine = Engine::open(golden_container(model, "config.json", "auto"),
                               pipeline_with({{"memory.dynamic", "8MiB"}, {"threads", "3"}}), options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engines.push_back(std::move(engine).value());
    expected.push_back(result_bits(run_job(*engines.back(), small_requests(model, 10))));
  }

  std::atomic<bool> ended = false;
  std::atomic<std::uint64_t> loops = 0;
  std::thread host([&] {
    while (!ended) {
      std::atomic<std::uint64_t> sum = 0;
      tbb::parallel_for(std::uint64_t{0}, std::uint64_t{1000}, [&](std::uint64_t i) { sum += i; });
      EXPECT_EQ(sum, 499'500U);
      ++loops;
    }
  });
  std::vector<std::unique_ptr<Session>> sessions;
  for (const auto& engine : engines) sessions.push_back(start_session(*engine));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<SubmittedRequest>> submitted;
    for (std::size_t i = 0; i < models.size(); ++i) {
      submitted.push_back(submit_all(*sessions[i], small_requests(models[i], 10)));
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      EXPECT_EQ(result_bits(answers(submitted[i])), expected[i]) << models[i];
    }
  }
  while (loops == 0) std::this_thread::yield();
  ended = true;
  host.join();
  for (const auto& session : sessions) EXPECT_TRUE(session->close().is_ok());
  EXPECT_EQ(limit(), 1U);
  sessions.clear();
  engines.clear();
  EXPECT_EQ(limit(), 1U);
  EXPECT_NE(said.find("max_allowed_parallelism is 1"), std::string::npos) << said;
}

}  // namespace
}  // namespace colibri::testing

int main(int argc, char** argv) {
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
