// What the parameters of fetch and transfer do.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "io/container/copy_container.hpp"
#include "io/read/fault_backend.hpp"
#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "stages/fetch.hpp"
#include "tests/cli/cli_runner.hpp"
#include "tests/engine/parameter_experiments.hpp"
#include "tests/engine/shared_out_pipeline.hpp"
#include "tests/stages/moe_job.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong{30'000};  // for what must happen
constexpr std::chrono::milliseconds kShort{100};    // for what must not

fs::path model() { return golden_container("qwen3_moe", "config.json", "auto"); }
// Records of several chunks.
fs::path demo_model() {
  return container_of(fs::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/checkpoint", "config.json",
                      "f32");
}

// A fetch stage that reads six records, all of which hang until the end.
class HangingReads {
 public:
  explicit HangingReads(std::map<std::string, std::string> params,
                        std::vector<Fault> faults = {{.kind = FaultKind::hang, .count = 1000}},
                        const fs::path& folder = model())
      : job_(folder, {.slots = 8, .transit = 8}), plan_(std::make_shared<FaultPlan>(std::move(faults))) {
    job_.services.read_faults = plan_;
    const StageKind kind{.info = &kFetchInfo, .create = create_fetch};
    params.try_emplace("backend", "pread");
    fetch_ = std::make_unique<StageHarness>(kind, job_.services, HarnessOptions{.params = std::move(params)});
  }
  ~HangingReads() {
    plan_->release();
    Message message;
    while (delivered_ < demanded_ && fetch_->context.take_posted(message, kLong)) pump(message);
  }

  const Status& started() const { return fetch_->started; }
  FaultPlan& plan() { return *plan_; }
  std::uint64_t record_bytes() const { return job_.container->layout().record_bytes; }
  void demand(std::uint32_t experts) {
    Step& step = job_.begin_step(0, 4);
    Visit& visit = job_.begin_visit(step, 0, 0);
    for (std::uint32_t i = 0; i < experts; ++i) visit.experts[visit.expert_count++] = i;
    fetch_->send(1, {.type = MessageType::demand,
                     .last = true,
                     .count = experts,
                     .layer = 0,
                     .step_slot = step.slot,
                     .step_serial = step.serial,
                     .object = &visit});
    demanded_ = experts;
  }
  // The next record, or why there is none.
  Status next() {
    Message message;
    const std::size_t before = delivered_;
    while (delivered_ == before && fetch_->context.take_posted(message, kLong)) pump(message);
    return last_;
  }

 private:
  void pump(const Message& message) {
    fetch_->send(kCompletionPort, message);
    Message expert;
    while (fetch_->take(0, expert)) {
      const std::unique_ptr<Status> error(expert.error);
      last_ = error ? *error : Status();
      ++delivered_;
    }
  }

  MoeJob job_;
  std::shared_ptr<FaultPlan> plan_;
  std::unique_ptr<StageHarness> fetch_;
  std::size_t demanded_ = 0;
  std::size_t delivered_ = 0;
  Status last_;
};

// Names of this process's threads that start with `prefix`.
std::string threads_named(const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    count += name.starts_with(prefix) ? 1 : 0;
  }
  return std::to_string(count);
}

// Whether the expert file is open with O_DIRECT; "refused" when the stage does not start.
std::string direct_flags(const std::string& value) {
  HangingReads reads({{"direct", value}});
  if (!reads.started()) return "refused";
  std::string seen;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error).filename() != "experts.bin") continue;
    const int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFL);
    seen += (flags & O_DIRECT) != 0 ? "direct " : "buffered ";
  }
  return seen;
}

std::string overlap_of_reads(std::map<std::string, std::string> params, bool expected) {
  HangingReads reads(std::move(params));
  reads.demand(6);
  EXPECT_TRUE(reads.plan().wait_until_hanging(1, kLong));
  return reads.plan().wait_until_hanging(2, expected ? kLong : kShort) ? "several at a time"
                                                                       : "one at a time";
}

std::vector<Request> requests() {
  std::vector<Request> all;
  for (const GoldenCase& one : golden_cases("qwen3_moe")) all.push_back(generate_request(one.prompt, 4));
  return all;
}

std::uint64_t metric(const JobRun& run, std::string_view stage, std::string_view name) {
  for (const StageReport& one : run.report.stages) {
    if (one.name == stage) return one.metric(name);
  }
  ADD_FAILURE() << "no stage " << stage;
  return 0;
}

// A job of a pipeline in which two stages of `kind` share out the experts: what both counted.
std::string shared_work(const std::string& kind, const std::string& part, const std::string& rest,
                        const char* counter) {
  SharedOut shape{.name = "two", .fetch = {{"all"}}, .transfer = {{"all"}}, .compute = {{"all"}}};
  const std::vector<SharedStage> two = {{part}, {rest}};
  (kind == "fetch" ? shape.fetch : kind == "transfer" ? shape.transfer : shape.compute) = two;
  const Registry registry = builtin_registry();
  PipelineProblems problems;
  std::vector<Override> settings = {{"memory.dynamic", "64MiB", {}}};
  if (kind == "transfer") {  // else messages would go past it
    for (const std::string each : {"stages.transfer0.", "stages.transfer1."}) {
      settings.push_back({each + "mode", "copy", {}});
      settings.push_back({each + "staging", "64", {}});  // room for every record
    }
  }
  PipelineSpec spec = parse_pipeline(shared_out_yaml(shape), "two", registry.infos(), settings, problems);
  check_pipeline(spec, registry.infos(), problems);
  EXPECT_TRUE(problems.to_status().is_ok()) << problems.to_status().to_string();
  auto engine = Engine::open(model(), std::move(spec), {});
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  const JobRun run = run_job(**engine, requests());
  return std::to_string(metric(run, kind + "0", counter)) + " and " +
         std::to_string(metric(run, kind + "1", counter));
}

// The other experts of the 16 of the model, for a part of the experiments below.
std::string rest_of(const std::string& part) { return part == "0/2" ? "1/2" : "4-"; }

std::string transfer_plan(const std::string& staging) {
  const auto engine =
      open_engine(model(), {{"stages.transfer.mode", "copy"}, {"stages.transfer.staging", staging}});
  if (engine == nullptr) return "";
  for (const PlanLine& line : engine->plan().lines) {
    if (line.what == "stage transfer") return std::to_string(line.bytes);
  }
  return "none";
}

std::string job_metric(const std::string& path, const std::string& value, std::string_view stage,
                       std::string_view counter) {
  const auto engine = open_engine(model(), {{"stages." + path, value}, {"memory.experts", "50%"}});
  if (engine == nullptr) return "";
  return metric(run_job(*engine, requests()), stage, counter) > 0 ? "some" : "none";
}

// How long a job takes on a clock that only reads move.
std::string virtual_duration(const std::string& bandwidth_limit) {
  const auto engine = open_engine(model(), {{"memory.experts", "min"},
                                            {"stages.predict.method", "none"},
                                            {"stages.fetch.bandwidth_limit", bandwidth_limit}});
  const auto device =
      std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{{.bytes_per_second = 1'000'000'000}});
  StepScheduler scheduler(1, [&] { return device->advance(); });
  run_job(*engine, requests(), {.stepped = &scheduler, .virtual_device = device});
  return std::to_string(device->now().count()) + " ns";
}

// Hits of a job in which nothing depends on when reads end, with more visits than it takes to pin records.
std::string hits_under(const std::string& policy) {
  const auto engine = open_engine(model(), {{"stages.fetch.policy", policy},
                                            {"stages.predict.method", "none"},
                                            {"steps.in_flight", "1"},
                                            {"memory.experts", "50%"}});
  if (engine == nullptr) return "";
  std::vector<Request> all = requests();
  for (Request& request : all) request.max_tokens = 40;
  return std::to_string(metric(run_job(*engine, std::move(all)), "fetch", "hits_total"));
}

// Which of two drives, the model's and that of its copy, are read.
std::string drives_read(const std::string& mirrors) {
  std::string folder;
  if (!mirrors.empty()) {
    folder = model().string() + "-mirror";
    const auto copied = copy_container(model(), folder, {});
    EXPECT_TRUE(copied.is_ok()) << copied.status().to_string();
  }
  const auto engine = open_engine(model(), {{"memory.experts", "50%"}, {"stages.fetch.mirrors", folder}});
  const DeviceLaw law{.bytes_per_second = 1'000'000'000};
  const auto device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{law, law});
  StepScheduler scheduler(1, [&] { return device->advance(); });
  run_job(*engine, requests(), {.stepped = &scheduler, .virtual_device = device});
  return std::string(device->usage(0).reads > 0 ? "first" : "") + (device->usage(1).reads > 0 ? " second" : "");
}

// Whether a job reads what one before it used.
std::string prewarmed(const std::string& value) {
  const test::TemporaryFolder state;
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"stages.fetch.prewarm", value}, {"memory.experts", "50%"}, {"state_dir", state.path()}};
  std::string seen;
  for (int i = 0; i < 2; ++i) {
    const auto engine = open_engine(model(), settings);
    if (engine == nullptr) return "";
    seen = metric(run_job(*engine, requests()), "fetch", "prewarm_reads_total") > 0 ? "some" : "none";
  }
  return seen;
}

}  // namespace

std::vector<Experiment> read_experiments() {
  return {
      {"fetch.backend", "pread", "io_uring",
       [](const std::string& value) -> std::string {
         HangingReads reads({{"backend", value}});
         if (!reads.started()) return "refused";
         return threads_named("colibri-pread") + " and " + threads_named("colibri-uring");
       }},
      {"fetch.direct", "off", "on", direct_flags},
      {"fetch.lanes", "1", "3",
       [](const std::string& value) {
         return overlap_of_reads({{"lanes", value}}, value != "1");
       }},
      {"fetch.inflight_bytes", "4096", "64MiB",
       [](const std::string& value) {
         return overlap_of_reads({{"lanes", "8"}, {"inflight_bytes", value}}, value == "64MiB");
       }},
      {"fetch.read_bytes", "128KiB", "1MiB",
       [](const std::string& value) {
         HangingReads reads({{"lanes", "1"}, {"read_bytes", value}}, {}, demo_model());
         reads.demand(1);
         EXPECT_TRUE(reads.next().is_ok());
         return std::to_string(reads.plan().offsets_started().size()) + " reads of the system";
       }},
      {"fetch.policy", "probability", "pinned", hits_under},
      {"fetch.prewarm", "true", "false", prewarmed},
      {"fetch.hints", "true", "false",
       [](const std::string& value) {
         return job_metric("fetch.hints", value, "fetch", "hint_reads_total");
       }},
      {"fetch.mirrors", "", "a copy", drives_read},
      {"fetch.bandwidth_limit", "0", "1MiB", virtual_duration},
      {"fetch.deadline_ms", "40", "60",
       [](const std::string& value) {
         HangingReads reads({{"deadline_ms", value}});
         reads.demand(1);
         const Status error = reads.next();
         return std::string(error.message().substr(0, error.message().find(':')));  // "... in 40 ms"
       }},
      {"fetch.experts", "0/2", "0-3",
       [](const std::string& part) { return shared_work("fetch", part, rest_of(part), "demands_total"); }},
      {"transfer.experts", "0/2", "0-3",
       [](const std::string& part) {
         return shared_work("transfer", part, rest_of(part), "copied_bytes_total");
       }},
      {"compute.experts", "0/2", "0-3",
       [](const std::string& part) { return shared_work("compute", part, rest_of(part), "experts_total"); }},
      {"transfer.mode", "handover", "copy",
       [](const std::string& value) {
         return job_metric("transfer.mode", value, "transfer", "copied_bytes_total");
       }},
      {"transfer.staging", "2", "16", transfer_plan},
  };
}

}  // namespace colibri::testing
