// Two engines with different models in one process, and eight threads of a host that submit and cancel at
// random while sessions come and go: every answer has the bits that it has alone. For half a second; with
// COLIBRI_TEST_BIG for two minutes times COLIBRI_TEST_SCALE.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <random>
#include <shared_mutex>
#include <thread>

#include "tests/support/session_job.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kHosts = 8;
constexpr std::size_t kOpenAtOnce = 12;  // requests of a host

std::chrono::milliseconds duration() {
  const bool big = std::getenv("COLIBRI_TEST_BIG") != nullptr;
  return std::chrono::milliseconds(static_cast<int>(big ? std::max(500.0, 120'000 * test_scale()) : 500.0));
}

// An engine, what its requests give when they run alone, and the session of the moment.
class Model {
 public:
  Model(const std::string& name, const std::string& experts) {
    engine_ = open_engine(golden_container(name, "config.json", "auto"), {{"memory.experts", experts},
                                                                          {"memory.dynamic", "1MiB"},
                                                                          {"threads", "2"},
                                                                          {"steps.max_rows", "16"},
                                                                          {"steps.wave_rows", "4"}});
    requests_ = small_requests(name, 20);
    for (Request& request : requests_) {
      if (request.task == Task::generate) request.max_tokens = 1 + request.tokens[0] % 12;
    }
    Request longer = requests_[0];
    longer.max_tokens = 60;
    requests_.push_back(longer);
    const JobRun alone = run_job(*engine_, requests_);
    bits_ = result_bits(alone);
    for (const RequestResult& result : alone.results) tokens_.push_back(result.tokens);
    session_ = start_session(*engine_);
  }

  // Ends the session with whatever is open, and starts another one.
  void begin_again() {
    const std::unique_lock lock(mutex_);
    session_.reset();
    session_ = start_session(*engine_);
  }
  Result<SubmittedRequest> submit(std::size_t which, RequestCallbacks callbacks) {
    const std::shared_lock lock(mutex_);
    return session_->submit(requests_[which], std::move(callbacks));
  }
  Result<RunReport> close() { return session_->close(); }

  std::size_t requests() const { return requests_.size(); }
  // True when it was finished rather than cancelled.
  bool check(std::size_t which, const RequestResult& result) const {
    if (!result.error.is_ok()) {
      EXPECT_EQ(result.error.code(), ErrorCode::cancelled) << result.error.to_string();
      const std::vector<std::int32_t>& all = tokens_[which];
      EXPECT_LE(result.tokens.size(), all.size());
      EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(), all.begin()));
      return false;
    }
    JobRun one;
    one.results.push_back(result);
    EXPECT_EQ(result_bits(one).at(0), bits_[which]) << "request " << which;
    return true;
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<Request> requests_;
  std::vector<std::vector<std::uint32_t>> bits_;   // [requests]
  std::vector<std::vector<std::int32_t>> tokens_;  // [requests]
  std::shared_mutex mutex_;
  std::unique_ptr<Session> session_;
};

struct Counts {
  std::atomic<std::uint64_t> submitted = 0, told = 0, finished = 0, cancelled = 0;
};

// One thread of the host: submits, cancels, polls and waits as it comes.
void host(std::uint64_t seed, std::vector<std::unique_ptr<Model>>& models, Clock::time_point end,
          Counts& counts) {
  struct Open {
    Model* model;
    std::size_t which;
    SubmittedRequest request;
  };
  std::mt19937_64 random(seed);
  std::deque<Open> open;
  auto settle = [&](const Open& one) {
    const bool finished = one.model->check(one.which, one.request.wait());
    ++(finished ? counts.finished : counts.cancelled);
  };
  while (Clock::now() < end) {
    switch (random() % 8) {
      case 0:
        if (!open.empty()) open[random() % open.size()].request.cancel();
        break;
      case 1: std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000)); break;
      case 2:
        std::erase_if(open, [&](const Open& one) {
          if (!one.request.done()) return false;
          settle(one);
          return true;
        });
        break;
      default: {
        if (open.size() >= kOpenAtOnce) {
          settle(open.front());
          open.pop_front();
        }
        Model& model = *models[random() % models.size()];
        const std::size_t which = random() % model.requests();
        RequestCallbacks callbacks;
        callbacks.done = [&counts](const RequestResult&) { ++counts.told; };
        auto request = model.submit(which, std::move(callbacks));
        ASSERT_TRUE(request.is_ok()) << request.status().to_string();
        ++counts.submitted;
        open.push_back({&model, which, std::move(request).value()});
      }
    }
  }
  for (const Open& one : open) settle(one);
}

TEST(ManyEngines, HostsThatSubmitAndCancelAtRandom) {
  const auto time = duration();
  const Watchdog watchdog("many engines", std::chrono::duration_cast<std::chrono::seconds>(time) + 300s);
  std::vector<std::unique_ptr<Model>> models;
  models.push_back(std::make_unique<Model>("olmoe_f32", "50%"));
  models.push_back(std::make_unique<Model>("mixtral", "min"));
  ASSERT_FALSE(::testing::Test::HasFailure());
  Counts counts;
  const Clock::time_point end = Clock::now() + time;
  std::vector<std::thread> hosts;
  for (int i = 0; i < kHosts; ++i) {
    hosts.emplace_back([&, i] { host(static_cast<std::uint64_t>(i) + 1, models, end, counts); });
  }
  for (std::size_t round = 0; Clock::now() < end; ++round) {
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(500ms, time / 5));
    models[round % models.size()]->begin_again();
  }
  for (std::thread& thread : hosts) thread.join();
  for (const auto& model : models) EXPECT_TRUE(model->close().is_ok());
  EXPECT_EQ(counts.finished + counts.cancelled, counts.submitted);
  EXPECT_EQ(counts.told, counts.submitted);
  EXPECT_GT(counts.finished, 0U);
  EXPECT_GT(counts.cancelled, 0U);
  RecordProperty("submitted", std::to_string(counts.submitted));
  RecordProperty("cancelled", std::to_string(counts.cancelled));
}

}  // namespace
}  // namespace colibri::testing
