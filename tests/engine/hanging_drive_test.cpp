// A drive that hangs behind one of several fetches: requests that need no record of it are answered as ever,
// those that do fail by its name and place, and the job goes on to its end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "io/checkpoint/convert.hpp"
#include "io/read/fault_backend.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "stages/list_source.hpp"
#include "tests/engine/shared_out_pipeline.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kDrives = 16;  // few enough experts on each that requests get by without one
constexpr std::int32_t kRequests = 40;

// Keeps all results, and tells when the last one is in.
class AllResults final : public ResultSink {
 public:
  explicit AllResults(std::function<void()> complete) : results(kRequests), complete_(std::move(complete)) {}
  Status result(RequestResult&& result) override {
    results.at(result.index) = std::move(result);
    if (++count_ == kRequests) complete_();
    return {};
  }
  Status flush() override { return {}; }
  std::vector<RequestResult> results;

 private:
  std::function<void()> complete_;
  std::int32_t count_ = 0;
};

class HangingDrive : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ConvertOptions options;
    for (std::uint32_t drive = 0; drive < kDrives; ++drive) {
      options.stripe.push_back(folder_ / ("drive" + std::to_string(drive)));
      fs::create_directories(options.stripe.back());
    }
    const fs::path demo = fs::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/checkpoint";
    const auto converted = convert_checkpoint(demo, folder_ / "model", options);
    ASSERT_TRUE(converted.is_ok()) << converted.status().to_string();
    container_ = Container::open(folder_ / "model").value();
  }
  ~HangingDrive() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // One row each.
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (std::int32_t i = 0; i < kRequests; ++i) all.push_back(generate_request({17 + 97 * i}, 1));
    return all;
  }
  // What the requests answer when all is well, and which drives each needs.
  void run_undisturbed() {
    const auto engine = open_engine(folder_ / "model", {{"memory.dynamic", "8MiB"}});
    ASSERT_NE(engine, nullptr);
    for (const Request& request : requests()) {
      ValueRecorder recorder;
      answers_.push_back(run_job(*engine, {request}, {.trace = &recorder}).results.at(0).tokens);
      needs_.emplace_back();
      for (const auto& [place, picks] : recorder.picks) {
        for (const auto& [expert, weight] : picks)
          needs_.back().insert(container_->record(place.first, expert).file);
      }
    }
  }
  std::int32_t needing(std::uint32_t drive) const {
    return static_cast<std::int32_t>(
        std::count_if(needs_.begin(), needs_.end(), [&](const auto& one) { return one.contains(drive); }));
  }
  // The drive that as many requests need as do not.
  std::uint32_t drive_to_hang() const {
    std::uint32_t best = 0;
    for (std::uint32_t drive = 1; drive < kDrives; ++drive) {
      if (std::abs(2 * needing(drive) - kRequests) < std::abs(2 * needing(best) - kRequests)) best = drive;
    }
    return best;
  }
  // "1,9,17": the experts on a drive, or all others.
  std::string experts(std::uint32_t drive, bool on_it) const {
    std::string list;
    for (std::uint32_t expert = 0; expert < container_->spec().num_experts; ++expert) {
      if ((container_->record(0, expert).file == drive) == on_it)
        list += (list.empty() ? "" : ",") + std::to_string(expert);
    }
    return list;
  }

  std::vector<std::vector<std::int32_t>> answers_;  // [requests]
  std::vector<std::set<std::uint32_t>> needs_;      // [requests] drives
  fs::path folder_ = fs::path(::testing::TempDir()) / ("colibri.hanging." + std::to_string(::getpid()));
  std::shared_ptr<const Container> container_;
};

TEST_P(HangingDrive, FailsTheRequestsThatNeedItAndNoOthers) {
  run_undisturbed();
  const std::uint32_t hanging = drive_to_hang();
  ASSERT_GT(needing(hanging), 2) << "take other prompts";
  ASSERT_LT(needing(hanging), kRequests - 2) << "take other prompts";
  const SharedOut shape{
      "drives", {{experts(hanging, false)}, {experts(hanging, true)}}, {{"all"}}, {{"all"}}};
  // A short deadline for this drive alone: a busy machine must not fail the others.
  const auto engine = open_pipeline(
      folder_ / "model", pipeline_from(shared_out_yaml(shape), {{"memory.experts", "min"},
                                                                {"memory.dynamic", "8MiB"},
                                                                {"steps.max_rows", "8"},
                                                                {"stages.fetch1.deadline_ms", "60"}}));
  ASSERT_NE(engine, nullptr);
  const Watchdog watchdog("hanging drive");
  const auto faults = std::make_shared<FaultPlan>(
      std::vector<Fault>{{.kind = FaultKind::hang, .count = ~std::uint64_t{0}, .file = hanging}});
  AllResults sink([&] {
    EXPECT_TRUE(engine->set_parameter("stages.fetch1.deadline_ms", "600000").is_ok());
    faults->release();
  });
  std::vector<Request> all = requests();
  for (std::size_t i = 0; i < all.size(); ++i) all[i].index = i;
  ListSource source(std::move(all));
  StepScheduler scheduler(3);
  const auto report = engine->run({.source = &source,
                                   .sink = &sink,
                                   .stepped = GetParam() ? &scheduler : nullptr,
                                   .read_faults = faults});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  const std::string drive = container_->expert_files()[hanging].string();
  for (std::size_t i = 0; i < needs_.size(); ++i) {
    const RequestResult& result = sink.results[i];
    if (!needs_[i].contains(hanging)) {
      EXPECT_TRUE(result.error.is_ok()) << i << ": " << result.error.to_string();
      EXPECT_EQ(result.tokens, answers_[i]) << i;
      continue;
    }
    const std::string error = result.error.to_string();
    EXPECT_EQ(result.error.code(), ErrorCode::timeout) << i << ": " << error;
    EXPECT_NE(error.find("layer "), std::string::npos) << error;
    EXPECT_NE(error.find("has not answered a read in 60 ms: " + drive + ", offset "), std::string::npos)
        << error;
    EXPECT_EQ(result.error.file(), drive);
    EXPECT_NE(error.find(", offset " + std::to_string(result.error.offset()) + ";"), std::string::npos)
        << error;
  }
  // The drive answers again: nothing is left of its failure.
  EXPECT_EQ(run_job(*engine, {requests().front()}).results.at(0).tokens, answers_.front());
}

INSTANTIATE_TEST_SUITE_P(Executors, HangingDrive, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "stepped" : "threads"; });

}  // namespace
}  // namespace colibri::testing
