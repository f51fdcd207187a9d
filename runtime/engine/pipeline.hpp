// Pipeline: a PipelineSpec brought to life. Built, started, waited for, stopped once.
//
// One generic builder makes actors, edges and placements from the spec; there is no second
// description of the graph. Start takes resources stage by stage in file order; a stage that
// fails to start stops those before it.
#pragma once

#include <atomic>
#include <chrono>
#include <colibri/registry.hpp>
#include <colibri/services.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/actor.hpp"
#include "runtime/engine/actor_context.hpp"
#include "runtime/engine/placement.hpp"
#include "runtime/metrics/run_report.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/placement.hpp"

namespace colibri {

class StepScheduler;

class Pipeline {
 public:
  struct Options {
    const PlacementPlan* placement = nullptr;  // of this spec; outlives the pipeline
    // Values that may change while the pipeline runs; null: none does.
    const LiveParameters* live = nullptr;
    // Called between the last start and the first delivery; an error ends the job. Empty: nothing is called.
    std::function<Status()> started;
    // Asked before each start of a stage and after the last: true ends the job with ErrorCode::cancelled.
    std::function<bool()> stopping;
    // Not null: everything runs on the thread that calls wait, in this scheduler's order (tests).
    StepScheduler* stepped = nullptr;
    // Tests: asked before each call into a stage; true makes it act as if blocked.
    std::function<bool()> inject_blocking;
    // Tests: asked at each wake of an actor; true loses it. Not for stepped pipelines.
    std::function<bool()> lose_wakes;
  };

  // scratch: memory for all stages, stage_bytes[i] for stage i. Everything passed must outlive the pipeline.
  static Result<std::unique_ptr<Pipeline>> build(const PipelineSpec& spec, const Registry& registry,
                                                 const Services& services,
                                                 std::span<const std::uint64_t> stage_bytes,
                                                 std::span<std::byte> scratch, const Options& options);
  ~Pipeline();  // aborts when it still runs, waits and stops

  Status start();
  // Returns when every stage has ended. After `fail`, stages still end by themselves.
  void wait();
  // The same for at most `limit`; true when every stage has ended. Not for stepped pipelines.
  bool wait_for(std::chrono::milliseconds limit);
  // Ends the job with an error as soon as stages allow; the first error counts. Thread-safe.
  void fail(Status status);
  // Ends the job with an error without another call into any stage, except for stop: those that run now
  // finish their call, messages on their way are dropped. The first error counts. Thread-safe, also during
  // start.
  void abort(Status status);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  Status status() const;
  // Stops the started stages in reverse order; called once all have ended, or after a failed start.
  void stop() noexcept;

  // Snapshot of all stages. Exact after wait.
  std::vector<StageReport> report() const;
  // One line an actor: levels of its inputs and what it waits for.
  std::string describe() const;

 private:
  struct Member {
    const StageSpec* spec;
    std::unique_ptr<Actor> actor;
    std::unique_ptr<ActorContext> context;
    Executor* executor;
    std::size_t place;            // in the plan's placements
    std::uint32_t seen_turn = 0;  // when help_stalled looked last
    bool seen_due = false;
    std::span<const std::uint32_t> passes{};  // Stage::passes_to, when messages do go past it
  };
  struct DeclaredEnd {  // of an edge
    Member* to;
    std::uint32_t input;
  };

  Pipeline() = default;
  void make_placements(const PlacementPlan& plan);
  Status make_actors(const PipelineSpec& spec, const Registry& registry, const Services& services,
                     std::span<const std::uint64_t> stage_bytes, std::span<std::byte> scratch,
                     const Options& options);
  Status make_edges(const PipelineSpec& spec, const Registry& registry, const Services& services);
  static Status ask_passes(Member& member);
  void connect_inputs(const std::vector<DeclaredEnd>& ends);
  void share_out_experts(std::uint32_t num_experts);
  Member* find(std::string_view name) noexcept;
  Status go_on_starting() const;
  Status start_stage(Member& member);
  Status give_up_start(Status status);
  bool all_ended() const;
  void actor_ended();
  void wait_idle() noexcept;
  void help_stalled();

  std::vector<std::unique_ptr<Placement>> placements_;
  const PlacementPlan* plan_ = nullptr;
  std::vector<std::unique_ptr<Edge>> edges_;
  std::vector<Member> members_;
  StepScheduler* stepped_ = nullptr;
  bool alone_ = false;  // oneTBB may have no workers: the thread that waits does all the work
  std::function<Status()> on_started_;
  std::function<bool()> stopping_;
  std::size_t started_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable all_ended_;
  std::size_t ended_ = 0;
  std::atomic<RunPhase> phase_{RunPhase::starting};
  std::atomic<bool> failed_{false};
  Status status_;
};

}  // namespace colibri
