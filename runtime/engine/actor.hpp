// Actor: a running stage. Its inbox, its state, its bookkeeping.
//
// The executor calls run() after a wake; at most one wake is outstanding (a flag, cleared
// before the inbox is looked at again). run() delivers messages in the order of priority of
// the input ports, keeps the promises of the stage contract (room on every output before a
// call, one call at a time) and accounts where the time goes. Exceptions of the stage end here:
// they are told to the pipeline, which aborts.
#pragma once

#include <array>
#include <atomic>
#include <colibri/stage.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/completion_queue.hpp"
#include "runtime/engine/edge.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/metrics/histogram.hpp"
#include "runtime/metrics/hop_estimate.hpp"

namespace colibri {

// Where a pipeline is; all its actors look at it before each call. Starting: nothing is delivered yet.
// Aborted: nothing is delivered any more, every actor ends at its next run and drops what it is sent.
enum class RunPhase : std::uint8_t { starting, running, aborted };

class Actor final : private Emitter, private CompletionPort {
 public:
  struct Metrics {
    Counter items;     // messages handled; of a source: messages sent
    Counter messages;  // delivered, from edges and through the completion port
    Counter calls;
    Counter busy_ns;  // in calls into the stage
    // In runs: taking messages, and sending them and waking, which is part of busy_ns too. An estimate, from
    // a part of the runs, without the time that a thread was off its CPU.
    Counter hop_ns;
    std::array<Counter, kWaitReasons> blocked_ns;  // by Wait
    Histogram service;                             // of one call
    Histogram queue;                               // from emit to delivery
  };

  // completion_capacity: most messages that foreign threads have posted and the stage has not seen.
  Actor(std::string name, const StageInfo& info, std::unique_ptr<Stage> stage, Executor& executor,
        std::uint32_t completion_capacity);

  void connect_input(std::uint32_t port, Edge& edge) { inputs_[port].push_back(&edge); }
  // An edge to `port` whose messages go past this stage: all that concerns it is when the edge ends.
  void connect_passing(std::uint32_t port, Edge& edge) { passing_[port].push_back(&edge); }
  // Only a by_expert port takes more than one edge: its owners are numbered in the order of these calls.
  void connect_output(std::uint32_t port, Edge& edge) { outputs_[port].edges.push_back(&edge); }
  // Says which of a port's edges leads to the owner of each expert; needed for more than one edge.
  void share_out(std::uint32_t port, std::vector<std::uint16_t> owners) {
    outputs_[port].owners = std::move(owners);
  }
  static constexpr std::uint16_t kNoOwner = 0xffff;
  // Called once when the actor will never emit again.
  void on_ended(std::function<void()> ended) { on_ended_ = std::move(ended); }
  // A broken promise (an emit without room) or an exception: the pipeline is to abort with this error.
  void on_failure(std::function<void(Status)> failed) { on_failure_ = std::move(failed); }
  // The phase of the pipeline, which outlives the actor; without one, always running.
  void follow(const std::atomic<RunPhase>& phase) { phase_ = &phase; }
  // Tests: called before each delivery; true makes the actor act as if blocked, until the next wake.
  void inject_blocking(std::function<bool()> blocked) { inject_blocking_ = std::move(blocked); }
  // Tests: asked at each wake; true loses it, as an executor might.
  void lose_wakes(std::function<bool()> lost) { lose_wakes_ = std::move(lost); }

  // Orders what all runs did before what the caller does; called when none is going on.
  void after_last_run() const noexcept { static_cast<void>(state_.load(std::memory_order_acquire)); }
  void wake(bool foreign);
  // A wake that no run has answered yet.
  bool due() const noexcept { return (state_.load(std::memory_order_relaxed) & kDue) != 0; }
  // Changes with each run that begins or ends; odd while one goes on.
  std::uint32_t turn() const noexcept { return turn_.load(std::memory_order_relaxed); }
  // Its last run ended so that others go first (StageInfo::gives_way).
  bool gave_way() const noexcept { return gave_way_.load(std::memory_order_relaxed); }
  // Schedules a run that was due and did not come. One run more than needed does no harm.
  void wake_again() { executor_.schedule(*this, true); }
  // Makes calls, if it is due and does not run already. Returns an actor that the executor must run, or
  // schedule, after this one: it is due, and nobody else has been told.
  [[nodiscard]] Actor* run();
  // Drops what lies in the inbox of an actor that ended, with what belongs to the receiver. Called by run,
  // and when the pipeline goes.
  void discard_inputs();

  Stage& stage() noexcept { return *stage_; }
  const StageInfo& info() const noexcept { return info_; }
  const std::string& name() const noexcept { return name_; }
  CompletionPort& completion_port() noexcept { return *this; }
  const Metrics& metrics() const noexcept { return metrics_; }
  const std::vector<std::vector<Edge*>>& inputs() const noexcept { return inputs_; }
  const std::vector<Edge*>& output_edges(std::uint32_t port) const noexcept { return outputs_[port].edges; }
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  // For errors: levels, the reason it waits, whether a run is due. Any thread, a snapshot.
  std::string describe() const;

 private:
  // Emitter
  void emit(std::uint32_t output_port, const Message& message) override;
  std::uint32_t room(std::uint32_t output_port) const override;
  std::uint32_t owners(std::uint32_t output_port) const override;
  std::uint32_t owner(std::uint32_t output_port, std::uint32_t expert) const override;
  void emit_to(std::uint32_t output_port, std::uint32_t owner, const Message& message) override;
  void end() override;
  // CompletionPort
  void post(const Message& message) noexcept override;

  struct Output {
    std::vector<Edge*> edges;           // none: not connected
    std::vector<std::uint16_t> owners;  // [num_experts] index of an edge; empty: there is at most one
  };

  bool aborted() const noexcept {
    return phase_ != nullptr && phase_->load(std::memory_order_acquire) == RunPhase::aborted;
  }
  bool claim(bool foreign);
  Actor* take_turn();
  Actor* announce(bool hand_over);
  bool step();
  bool outputs_have_room();
  void send(Edge& edge, const Message& message);
  bool next_message(Message& message);
  bool take_from(std::uint32_t port, Message& message);
  bool inputs_ended() const;
  void deliver(Message& message);
  void call_resume();
  void call_end_of_input();
  template <class Call>
  bool guarded(std::string_view function, Call&& call);
  std::uint64_t begin_call();
  void account_call(std::uint64_t begin);
  void after_call(Wait wait, std::uint8_t port);
  void finish();
  void leave();
  void refuse(const Message& message, std::string what);
  void fail(ErrorCode code, std::string what);

  const std::string name_;
  const StageInfo& info_;
  const std::unique_ptr<Stage> stage_;
  Executor& executor_;
  const std::uint64_t most_unannounced_ns_;
  std::vector<std::vector<Edge*>> inputs_;   // [ports][edges]
  std::vector<std::vector<Edge*>> passing_;  // [ports][edges]
  std::vector<std::uint32_t> next_edge_;     // [ports] round robin
  std::vector<Output> outputs_;              // [ports]
  std::vector<Edge*> unannounced_;           // were sent something, and the receivers not woken yet
  std::uint64_t unannounced_since_ns_ = 0;
  std::uint64_t announced_ns_ = 0;  // last time in a long call
  std::uint32_t short_calls_ = 0;   // in a row, up to a limit
  CompletionQueue completions_;
  // On a line of its own: other threads write it. Both: woken while it runs.
  static constexpr std::uint8_t kDue = 1, kRunning = 2;
  alignas(kCacheLine) std::atomic<std::uint8_t> state_{0};
  alignas(kCacheLine) std::atomic<std::uint32_t> turn_{0};  // see turn()
  const std::atomic<RunPhase>* phase_ = nullptr;
  std::atomic<Wait> blocked_{Wait::none};  // what the stage answered last; other threads only look
  std::uint32_t blocked_port_ = 0;         // the port that it answered for
  bool resume_due_ = false;                // a delivery may have cleared the reason
  bool batch_open_ = false;                // the stage wants to be resumed when the inbox is empty
  bool end_requested_ = false;
  bool end_of_input_called_ = false;
  std::atomic<bool> ended_{false};
  Message* delivered_ = nullptr;  // the message that the stage is being called with
  bool passed_on_ = false;        // what belongs to its receiver was sent on in this call
  std::uint32_t runs_ = 0;
  std::atomic<bool> gave_way_{false};
  bool hops_timed_ = false;            // in this run
  std::uint64_t clock_ns_ = 0;         // last reading in this run
  std::uint64_t outside_hops_ns_ = 0;  // of this run: in the stage without its emits
  std::uint64_t emit_ns_ = 0;          // of this call
  HopEstimate hops_;
  Wait accounted_ = Wait::none;  // reason of the blocked time that is running
  std::uint64_t accounted_since_ = 0;
  std::function<void()> on_ended_;
  std::function<void(Status)> on_failure_;
  std::function<bool()> inject_blocking_;
  std::function<bool()> lose_wakes_;
  Metrics metrics_;
};

}  // namespace colibri
