// BlockSession: the experts of single layers as a service, for hosts with their own attention.
//
//   auto session = BlockSession::start(*engine);          // an engine with block_in and block_out
//   std::vector<float> output(rows * hidden);
//   BlockAnswer answer = session.value()->run({.layer = 3, .rows = rows, .input = x, .output =
//   output.data()});
//
// Each call goes through in steps of its own, as many as its rows need: an expert is read once
// a step, so calls with few rows read more. What comes out does not depend on how a call is cut
// into steps, nor on other calls.
#pragma once

#include <colibri/engine.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/export.hpp"

namespace colibri {

// Rows for the MoE block of one layer, and where what comes out goes. The memory is the host's; it must stay
// until the call is answered. Experts and weights come in ascending order of the expert's number.
struct BlockCall {
  std::uint32_t layer = 0;           // a MoE layer
  std::uint32_t rows = 0;            // 1 to max_seq_len of the model
  const float* input = nullptr;      // [rows, hidden] the residual stream after attention, before the norm
  float* output = nullptr;           // [rows, hidden] what the block adds to it; may be the input's memory
  std::uint32_t* experts = nullptr;  // [rows, num_experts_per_token]; null: not wanted
  float* weights = nullptr;          // [rows, num_experts_per_token]; null: not wanted
};

struct BlockAnswer {
  Status status;               // not ok: the output means nothing
  double latency_seconds = 0;  // from the call to the answer
};

// A call under way. Copies are the same call. All functions are thread-safe.
class COLIBRI_API SubmittedBlock {
 public:
  struct COLIBRI_HIDDEN State;
  explicit SubmittedBlock(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() const;
  // Waits for the answer. Not to be called from a callback, which the pipeline waits for.
  BlockAnswer wait() const;
  // Asks for an early end: rows that are in no step yet are not computed, and the answer is
  // ErrorCode::cancelled. The host's memory may be written to until the call is answered.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

class COLIBRI_API BlockSession {
 public:
  // Starts a job on the engine, which must outlive the session. Errors: those of Engine::run before its first
  // step; invalid_input when the engine's pipeline takes requests rather than hidden states.
  static Result<std::unique_ptr<BlockSession>> start(Engine& engine);
  // Cancels what is open and waits for the end of the job. Not to be called from a callback.
  ~BlockSession();

  // What submit would refuse: a layer without experts, a number of rows that is 0 or above max_seq_len,
  // pointers that are null where they must not be or not aligned to 4, outputs that overlap one another or
  // part of the input, and (reading all of it) values of the input that are not finite, by row and column.
  // Thread-safe.
  Status check(const BlockCall& call) const;

  // Queues a call. `done` runs on a thread of the pipeline, which waits for its return, as does whoever waits
  // for the answer; it must not wait, close or destroy, but may submit. What it throws ends the job. Errors:
  // those of check; cancelled (the session is closed); the failure that has ended the job. Thread-safe.
  Result<SubmittedBlock> submit(const BlockCall& call, std::function<void(const BlockAnswer&)> done = {});
  // submit and wait.
  BlockAnswer run(const BlockCall& call);

  RunReport stats() const;  // of the job so far; thread-safe
  // False once the job has ended, for whatever reason: nothing is taken any more, and close says why.
  // Thread-safe.
  bool running() const;
  // Takes no more calls, waits until all are answered, and ends the job: its report, or why it failed. Called
  // again, it says the same. Thread-safe.
  Result<RunReport> close();
  void cancel();  // asks for an early end of all open calls; the session stays open; thread-safe

 private:
  struct COLIBRI_HIDDEN State;
  COLIBRI_HIDDEN explicit BlockSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace colibri
