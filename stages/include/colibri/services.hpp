// Services: what the built-in stages share read-only, or own by convention stated per field.
#pragma once

#include <colibri/messages.hpp>
#include <colibri/registry.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/container/container.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri {

class DeviceModel;
class FaultPlan;
class Tokenizer;
class VirtualDevice;
struct DenseWeights;
struct UsageSnapshot;

// Where requests come from. Called by the read stage, and where it says so by the admit stage, which may be
// at the same time.
class RequestSource {
 public:
  enum class Pull : std::uint8_t { request, wait, end };
  virtual ~RequestSource() = default;
  // Fills `request` (possibly with request.error set). wait: nothing now, `notify` will be called later.
  virtual Pull pull(Request& request) = 0;
  // True when all requests exist already (a file): steps are then filled before they start.
  virtual bool finite() const = 0;
  // Asks for one call of `notify` (from any thread) when a pull would no longer wait, or sooner. An
  // empty function takes the question back: when that returns, notify is not called any more.
  virtual void on_ready(std::function<void()> notify) = 0;
  // Sources that set Request::cancelled should say when they have, or requests that wait are answered only
  // when it is their turn. Asks as on_ready does, for one call of `notify` after a cancel. Called by admit.
  virtual void on_cancelled(std::function<void()> /*notify*/) {}
  // Hands over a request that was cancelled before it was pulled; false: there is none. Called by admit.
  virtual bool pull_cancelled(Request& /*request*/) { return false; }
  // How many requests pull has handed over: after a cancel admit takes in all of these, to see whose it is.
  virtual std::uint64_t pulled() const { return 0; }
};

// Where results go. Called by the write stage only.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual Status result(RequestResult&& result) = 0;
  virtual void piece(std::uint64_t /*index*/, std::string_view /*text*/) {}
  // Results so far must survive a crash (called between steps and at the end).
  virtual Status flush() = 0;
};

// Rows for the experts of one MoE layer, without the model around them.
struct HiddenRows {
  std::string name;             // of the batch they belong to, for messages: "moe_input.3"
  std::uint64_t batch = 0;      // the host's number of it
  std::uint32_t layer = 0;      // a MoE layer
  std::uint32_t first_row = 0;  // of the batch
  std::uint32_t rows = 0;
};

// What came of them; valid during the call that hands it over.
struct HiddenResults {
  // [rows, hidden] what the block adds to each row, the shared expert included; not the row itself.
  std::span<const float> output;
  std::span<const std::uint32_t> experts;  // [rows, num_experts_per_token] in ascending order
  std::span<const float> weights;          // [rows, num_experts_per_token] of these
  // [rows] not ok: the row has no result, and what is said of it means nothing.
  std::span<const Status> status;
};

// Where hidden states come from. Called by the block_in stage only.
class HiddenSource {
 public:
  enum class Pull : std::uint8_t { rows, wait, end };
  virtual ~HiddenSource() = default;
  // Writes the next rows into residual [as many as fit, hidden]: the residual stream after attention, before
  // the norm. They become one step: few rows at a time read more. wait: nothing now, `notify` will be called
  // later. An error ends the job.
  virtual Result<Pull> pull(HiddenRows& rows, std::span<float> residual) = 0;
  // As of RequestSource. A host that wants a job to stop while a pull waits notifies too.
  virtual void on_ready(std::function<void()> notify) = 0;
};

// Where the results of hidden states go. Called by the block_out stage only; the rows of a batch come in
// pieces, and with several steps in flight in any order.
class HiddenSink {
 public:
  virtual ~HiddenSink() = default;
  virtual Status rows(const HiddenRows& rows, const HiddenResults& results) = 0;
};

// Copies of intermediate values for `colibri trace` and `--trace-routing`. Called by stages in the order of
// their work, from several threads: implementations lock. Rows are given with their sequence and position.
class TraceRecorder {
 public:
  virtual ~TraceRecorder() = default;
  virtual bool wants_values() const = 0;   // hidden states, moe inputs and outputs, logits
  virtual bool wants_routing() const = 0;  // picks and weights
  // name: "hidden_states.N", "moe_input.N", "moe_output.N", "router_logits.N", "logits"
  virtual void values(std::string_view name, std::uint32_t layer, const Sequence& sequence,
                      std::uint32_t position, std::span<const float> row) = 0;
  virtual void routing(std::uint64_t step, std::uint64_t visit, const Sequence& sequence,
                       std::uint32_t position, std::uint32_t layer, std::span<const std::uint32_t> experts,
                       std::span<const float> weights) = 0;
};

// Keys and values in blocks: 16 positions of one layer each, at base + block * block_stride. A page is a
// block of every layer, one behind the other. A sequence knows one block for each 16 of its positions
// (Sequence::kv_blocks), from which layers count: all layers of the model; or, when its rows are all in one
// step, those of a run, since only their keys and values are alive at a time.
struct KvRegion {
  kernels::KvFormat format = kernels::KvFormat::f32;
  std::byte* base = nullptr;
  std::size_t block_stride = 0;
  std::uint32_t pages = 0;       // handed out by admit only
  std::uint32_t layers = 1;      // of the model: blocks of a page
  std::uint32_t run_layers = 1;  // most layers of a run: those from one MoE layer to the next, that included
  std::vector<std::uint32_t> layer_in_run;  // [layers]

  // Block 0 of the layer, for the blocks of the sequence.
  std::byte* layer_base(const Sequence& sequence, std::uint32_t layer) const noexcept {
    return base + (sequence.in_one_step ? layer_in_run[layer] : layer) * block_stride;
  }
};

// The slots of one fetch stage: numbers [first, first + slots) of the region, `transit` of them kept free of
// residents.
struct SlotShare {
  std::uint32_t first = 0;
  std::uint32_t slots = 0;
  std::uint32_t transit = 1;
};

// Expert slots, shared out between the fetch stages.
struct SlotRegion {
  std::byte* base = nullptr;  // 2 MiB-aligned
  std::size_t stride = 0;
  std::uint32_t slots = 0;
  std::vector<SlotShare> shares;  // [fetch stages] by StageContext::instance
};

struct Services {
  PlanInputs plan;
  const Container* container = nullptr;
  const kernels::KernelTable* kernels = nullptr;
  const DenseWeights* dense = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: token ids only
  KvRegion kv;
  SlotRegion slots;
  std::span<Step> steps;              // handed out by admit or block_in
  std::span<HintBatch> hint_batches;  // handed out by route
  RequestSource* source = nullptr;
  ResultSink* sink = nullptr;
  HiddenSource* hidden_source = nullptr;
  HiddenSink* hidden_sink = nullptr;
  UsageSnapshot* usage = nullptr;  // of experts, by earlier jobs; fetches add this one's. Null: none is kept
  TraceRecorder* trace = nullptr;          // null: nothing is traced
  // Tests and benches, see ReadBackendOptions: faults injected into the reads of experts, drives that they
  // are held back to look like, a clock on which they end.
  std::shared_ptr<FaultPlan> read_faults;
  std::vector<std::shared_ptr<DeviceModel>> read_drives;
  std::shared_ptr<VirtualDevice> virtual_device;
  std::function<void(Status)>
      fail_job;  // a failure that ends the job (full disk, broken device); thread-safe
  std::function<void()>
      leak_slots;  // reads may go into the slots for ever: their memory is never freed or used again
  std::function<void(std::string)> log;  // one line; thread-safe
  std::function<bool()> stopping;        // true: admit nothing new, finish what runs
};

}  // namespace colibri
