// Engine: a model opened with a pipeline, ready to run jobs.
//
//   auto pipeline = ...;                                  // parse_pipeline, or the built-in one
//   auto engine = Engine::open("model", pipeline, {});
//   RunReport report = engine.value()->run({.source = &source, .sink = &sink}).value();
//
// The engine never prints, exits, installs signal handlers or creates a oneTBB
// global_control. The program that embeds it should allow 1 + worker_slots() threads
// (tbb::global_control::max_allowed_parallelism); a lower value in force is logged by name.
// In a child that fork made an engine of the parent cannot run: its threads are not there.
// Every call says so with ErrorCode::forked, and nothing of it is freed there.
#pragma once

#include <colibri/services.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/read/aligned_region.hpp"
#include "io/status.hpp"
#include "kernels/export.hpp"
#include "runtime/memory/memory_plan.hpp"
#include "runtime/metrics/run_report.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

class DeviceModel;
class FaultPlan;
class StepScheduler;
class VirtualDevice;

struct EngineOptions {
  // Stage kinds; null: the built-in ones. Must outlive the engine.
  const Registry* registry = nullptr;
  // Kernels by name ("avx512", "avx2", "scalar"); empty: the best that this processor supports.
  std::string kernels;
  // Called by open before it plans, with the container and its tokenizer (null: it has none): what the job
  // that the engine is opened for will be. Empty: not known.
  std::function<Result<Workload>(const Container&, const Tokenizer*)> workload;
  // Called by open when the container, its tokenizer and the plan are found good, before memory is taken and
  // weights are read: the place for a host's own refusals. An error ends the opening. Empty: nothing is
  // asked.
  std::function<Status(const Container&)> before_loading;
  // Asked by open before each read of weights, a few MiB: true ends the opening with ErrorCode::cancelled.
  std::function<bool()> stopping;
  // One line each; may be called from any thread. Empty: nothing is said.
  std::function<void(std::string)> log;
  // The host's memory for the pools and slots, in place of mappings of the engine's own. Called by open, and
  // when the engine goes. Empty functions: not used.
  MemorySource memory;
};

struct Job {
  RequestSource* source = nullptr;
  ResultSink* sink = nullptr;
  // For pipelines that begin with block_in and end with block_out.
  HiddenSource* hidden_source = nullptr;
  HiddenSink* hidden_sink = nullptr;
  TraceRecorder* trace = nullptr;  // null: nothing is traced
  // Called when every stage has started, before anything is delivered, on the thread that runs the job: the
  // place to touch what an earlier job has left. An error ends the job.
  std::function<Status()> started;
  // Polled between steps; true finishes what is in the pipeline and leaves the rest unanswered. True while
  // stages start: no more of them is, `started` is not called, and no request is answered.
  std::function<bool()> stopping;
  // Called about ten times a second with a snapshot, from the thread that runs the job.
  std::function<void(const RunReport&)> progress;
  // Tests: runs the graph on the calling thread in this scheduler's order.
  StepScheduler* stepped = nullptr;
  // Tests: faults injected into the reads of experts.
  std::shared_ptr<FaultPlan> read_faults;
  // Tests: see Pipeline::Options.
  std::function<bool()> inject_blocking;
  std::function<bool()> lose_wakes;
  // Tests and benches: drives that the reads of experts are held back to look like; file i of the experts
  // lies on read_drives[i % size].
  std::vector<std::shared_ptr<DeviceModel>> read_drives;
  // Tests: the clock on which the reads of experts end. Goes with `stepped`, whose scheduler moves it.
  std::shared_ptr<VirtualDevice> virtual_device;
};

class COLIBRI_API Engine {
 public:
  // Opens the container, plans memory, loads the dense weights. Nothing is allocated when the plan does not
  // fit.
  static Result<std::unique_ptr<Engine>> open(const std::filesystem::path& model, PipelineSpec pipeline,
                                              EngineOptions options);
  // Cancels a job that runs in another thread and waits for its end; not to be called from a job's own calls.
  ~Engine();

  // Runs one job to its end; the report covers it also when some requests failed. Errors are failures of the
  // job as a whole (a sink that cannot write, a stage that cannot start, a stage that throws); after any of
  // them the next job may run, unless the error says otherwise. One job at a time: a second one is refused.
  Result<RunReport> run(const Job& job);

  // Changes a parameter of a stage: "stages.fetch.hints", "false". It holds from the stage's next use of it
  // on, for a job that runs and for those that follow. Only parameters that StageInfo marks while_running
  // (`colibri inspect KIND` shows them); the others are refused by name. Thread-safe, also from within a job.
  Status set_parameter(std::string_view path, std::string_view value);

  // Ends the running job promptly with ErrorCode::cancelled: calls into stages, source and sink that are
  // going on end first, and reads in flight are waited for; requests without a result stay unanswered.
  // Without a running job nothing happens. Thread-safe, also from within the job.
  void cancel();
  // What the running job has done so far; without one, what the last job had done at its end; empty before
  // the first. Thread-safe.
  RunReport stats() const;
  // What the stages of the running job wait for, one line each, to find out why a job stands still; empty
  // without a job. Thread-safe.
  std::string describe() const;

  // What enters the first layer for each token: rows [tokens, hidden]. Errors: invalid_input (a token that is
  // not in the vocabulary, memory of another size). Thread-safe.
  Status embedding_rows(std::span<const std::int32_t> tokens, std::span<float> rows) const;

  const ModelSpec& spec() const noexcept;
  const Container& container() const noexcept;
  const Tokenizer* tokenizer() const noexcept;  // null: the container has none
  const PipelineSpec& pipeline() const noexcept;
  const MemoryPlan& plan() const noexcept;
  const kernels::KernelTable& kernels() const noexcept;
  // True in a child that fork made of the process that opened it.
  bool forked() const noexcept;
  // Threads of the arenas of all placements together.
  std::uint32_t worker_slots() const noexcept;

 private:
  struct COLIBRI_HIDDEN State;
  COLIBRI_HIDDEN explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether jobs of the pipeline work on a host's hidden states (it has a block_in) rather than on requests.
COLIBRI_API bool takes_hidden_states(const PipelineSpec& pipeline);

// What `colibri plan` shows: opens the container and plans for a machine, without loading weights.
// `problems`: as of plan_memory.
COLIBRI_API Result<MemoryPlan> plan_model(const std::filesystem::path& model, const PipelineSpec& pipeline,
                                          const Registry& registry, const Machine& machine,
                                          PipelineProblems* problems = nullptr);

}  // namespace colibri
