// The messages of the built-in pipeline, and the objects they point to.
//
// A Message is small and copied through rings; what it points to is pooled and has one
// owner at a time: whoever holds the message. A step's rows are split over waves; a row's
// arrays may be touched only by the holder of its wave, except where a comment says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/status.hpp"
#include "io/text/request.hpp"
#include "kernels/kernel_table.hpp"
#include "topology/stage_info.hpp"

namespace colibri {

class StreamDecoder;
class StopMatcher;

// A request in flight. Created by `read`, owned by `admit` from then on; the holder of a wave with rows
// of it may read `tokens`, `kv_blocks`, `request`; only `sample` appends tokens and results.
struct Sequence {
  Request request;
  std::vector<std::int32_t> tokens;  // prompt, then generated; reserved to its final size
  std::uint32_t prompt_size = 0;
  std::uint32_t computed = 0;              // positions whose keys and values are stored (admit)
  bool in_one_step = false;                // all its rows are in the step that it is in (admit)
  std::vector<std::uint32_t> kv_blocks;    // [position / 16] see KvRegion (admit)
  bool finished = false;                   // by sample before it tells of results; by admit when cancelled
  RequestResult result;                    // filled by sample
  Status error;                            // first error of any of its rows (sample)
  std::vector<float> pooled;               // embed: running sum or last state (sample)
  std::shared_ptr<StreamDecoder> decoder;  // sample; null without a tokenizer
  std::shared_ptr<StopMatcher> stop_matcher;
};

struct Step;
struct Visit;

// Where the record of a visit's expert lies, leased to the visit.
struct LentRecord {
  const std::byte* data = nullptr;
  std::uint32_t slot = 0;  // goes back by `released`
  std::uint32_t next = 0;  // of records told by one message: the expert of the one after this
  bool kept = false;       // others should be computed first: nothing can be read into its slot afterwards
};

// One micro-batch of a step: rows [row_begin, row_end) of its arrays.
struct Wave {
  Step* step = nullptr;
  std::uint32_t index = 0;  // within the step
  std::uint32_t row_begin = 0;
  std::uint32_t row_end = 0;
  std::uint32_t layer = 0;  // the MoE layer that route, compute and combine work on
  Visit* visit = nullptr;   // of that layer (route)
  std::uint32_t rows() const noexcept { return row_end - row_begin; }
};

// One (step, MoE layer) pair. Filled by `route` wave by wave; read-only for others once they were told, but
// for what is said below: `fetch` reads experts[first, first + count) of its demand, `compute` and `combine`
// the whole after `visit`. The object is in use again as soon as all results of the visit are combined. So a
// stage may look at it only while it owes the visit something that was asked of it: a fetch the experts of a
// demand, a transfer the records of a message, a compute the results of experts that it has.
struct Visit {
  Step* step = nullptr;
  std::uint32_t layer = 0;
  std::uint64_t serial = 0;  // unique, ascending in order of routing
  std::uint32_t waves_routed = 0;
  std::uint32_t expert_count = 0;         // distinct experts so far
  std::uint32_t* experts = nullptr;       // [num_experts] in order of first demand
  std::uint32_t* row_offsets = nullptr;   // [num_experts + 1] into row_list, by expert id
  std::uint32_t* row_list = nullptr;      // [rows * k] step row of each pick, sorted by (expert, row)
  std::uint32_t* places = nullptr;        // [rows, k] position of a pick in row_list (= row of expert_out)
  std::uint32_t* wave_pending = nullptr;  // [waves] results a wave still waits for (combine)
  Status* expert_status = nullptr;        // [num_experts] failed reads (compute writes before expert_done)
  LentRecord* records = nullptr;  // [num_experts] what the holder of an `expert` message tells of its own
  std::uint32_t* next_done = nullptr;  // [num_experts + 1] for results told by one message: the expert after
                                       // this one (compute writes before expert_done)
};

// What a row asks of `sample`.
enum RowFlags : std::uint8_t {
  kRowNone = 0,
  kRowSample = 1,  // draw the next token from this row's logits
  kRowScore = 2,   // log-probability of the next prompt token
  kRowEmbed = 4,   // add the final state to the pooled embedding
  kRowLast = 8,    // last prompt row of its sequence
};

// Rows of all kinds going through the layers together. Arrays are allocated once, for max_rows.
struct Step {
  std::uint64_t serial = 0;
  std::uint32_t slot = 0;  // index in the pool of steps
  std::uint32_t rows = 0;
  std::uint32_t wave_count = 0;
  std::uint32_t waves_sampled = 0;     // sample, block_out
  bool followed = false;               // another step through all layers will come after this one (admit)
  bool answered_later = false;         // no next token depends on it: `sample` may give it back first (admit)
  Wave* waves = nullptr;               // [wave_count]
  Sequence** sequences = nullptr;      // [rows]
  std::int32_t* tokens = nullptr;      // [rows]
  std::uint32_t* positions = nullptr;  // [rows]
  std::uint8_t* flags = nullptr;       // [rows] RowFlags
  Status* row_status = nullptr;        // [rows] not ok: the row's sequence fails
  float* residual = nullptr;           // [rows, hidden]
  float* normed = nullptr;             // [rows, hidden] input of the MoE block after its norm; after
                                       // combine, what the block has added to the residual
  kernels::QuantizedRows normed_quantized;  // the same for integer weights (values null otherwise)
  float* router_logits = nullptr;           // [rows, num_experts]
  std::uint32_t* picks = nullptr;           // [rows, k] ascending expert id
  float* pick_weights = nullptr;            // [rows, k]
  float* expert_out = nullptr;              // [rows * k, hidden] in the order of Visit::row_list
  float* shared_out = nullptr;              // [rows, hidden]; null without a shared expert
  Visit visits[2];                          // used in turn, also from one use of the step to the next (route)
};

// Experts that a later visit of the step, or one of the step after it, may need.
struct HintTarget {
  std::uint32_t layer = 0;
  std::uint32_t steps_ahead = 0;  // 1: of the next step
  bool sweep = false;  // the step touches most experts; this is all that is known of them, and replaces what
                       // was said of the visit before
  std::uint32_t expert_count = 0;
  std::uint32_t* experts = nullptr;  // [num_experts] likeliest first
  float* probabilities = nullptr;    // [num_experts]
};

// Most MoE layers that a hint looks ahead.
inline constexpr std::uint32_t kMaximumHintDepth = 3;
// Those that a sweep looks ahead at least: to name the experts that steps use to touch costs nothing, and a
// drive that has read all of one layer goes on with the next.
inline constexpr std::uint32_t kSweepDepth = 2;

// What a wave brings to a MoE layer, for guesses about later ones. Pooled; travels route -> predict -> fetch
// and back by `spent`.
struct HintBatch {
  std::uint64_t step_serial = 0;
  std::uint32_t step_slot = 0;
  std::uint32_t wave = 0;   // index within the step
  std::uint32_t layer = 0;  // the layer whose residual was copied
  std::uint32_t rows = 0;
  std::uint32_t step_rows = 0;            // Step::rows
  bool followed = false;                  // Step::followed
  float* residual = nullptr;              // [wave_rows, hidden] not filled for the last MoE layer
  std::uint32_t* picks = nullptr;         // [wave_rows, k] what the wave picked in `layer`, ascending id
  std::uint32_t target_count = 0;         // set by predict: nearest layer first
  HintTarget targets[kMaximumHintDepth];  // arrays for the first PlanInputs::hint_depth of them
};

// A finished result, or (done == false) a piece of streamed text.
struct Outcome {
  RequestResult result;
  bool done = true;
  std::string piece;
};

// A record that was handed out and is no longer needed: `slot` held `expert`.
struct Lease {
  std::uint32_t slot = 0;
  std::uint32_t expert = 0;
};

struct Message {
  MessageType type = MessageType::host;
  std::uint8_t port = 0;          // input port at the receiver, set on delivery
  bool last = false;              // demand: the visit's last wave is routed
  std::uint32_t first = 0;        // demand: first new expert; expert, expert_done: expert id
  std::uint32_t count = 0;        // demand: number of the receiver's new experts; visit: of its experts;
                                  // slot: of leases; expert, expert_done: of records or results, the first
                                  // of `first`, the others as LentRecord::next and Visit::next_done say;
                                  // step_done: 1 when results are still to come, told by one without object
  std::uint32_t layer = 0;        // demand: the visit's. With count 0 its object must not be looked at
  std::uint32_t step_slot = 0;    // demand: Step::slot of the visit's step
  std::uint64_t step_serial = 0;  // demand: Step::serial of the visit's step
  void* object = nullptr;         // what MessageType says
  Status* error = nullptr;        // expert: why there is no record of `first`; owned by the receiver
  std::uint64_t sent_ns = 0;      // steady clock, for queue latency

  Wave* wave() const noexcept { return static_cast<Wave*>(object); }
  Visit* visit() const noexcept { return static_cast<Visit*>(object); }
  std::span<const Lease> leases() const noexcept { return {static_cast<const Lease*>(object), count}; }
  Step* step() const noexcept { return static_cast<Step*>(object); }
  Sequence* sequence() const noexcept { return static_cast<Sequence*>(object); }
  HintBatch* hints() const noexcept { return static_cast<HintBatch*>(object); }
  Outcome* outcome() const noexcept { return static_cast<Outcome*>(object); }

  // Take what belongs to the receiver. What is still there when on_message throws, or when the message is
  // never received, is freed by the runtime. Objects of host messages are not: keep those in a pool of their
  // sender.
  std::unique_ptr<Sequence> take_sequence() noexcept {
    return std::unique_ptr<Sequence>(static_cast<Sequence*>(std::exchange(object, nullptr)));
  }
  std::unique_ptr<Outcome> take_outcome() noexcept {
    return std::unique_ptr<Outcome>(static_cast<Outcome*>(std::exchange(object, nullptr)));
  }
  std::unique_ptr<Status> take_error() noexcept {
    return std::unique_ptr<Status>(std::exchange(error, nullptr));
  }
};

}  // namespace colibri
