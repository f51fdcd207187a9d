// compute: expert-major. All rows of the step that picked an expert go through it in one go.
//
// Records arrive while the visit is still being routed; nothing is computed before its last
// wave has left `route`, since only then an expert's rows are complete. Then those go first whose slots can
// be read into afterwards, the one with the fewest rows before others, since its slot is free soonest; while
// none of them is there, the shared expert, then residents. Ready experts are computed in batches: see
// expert_batch.hpp.
//
// Several computes may share out the experts: one hears of the visits in which it has any, and
// of its own records. A Visit is read from the first message about it to the last result that
// is sent: till then it cannot be over, since combine waits for each of these results. A compute
// without an expert in a visit never sees it.
#include "stages/compute.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <colibri/services.hpp>
#include <memory>
#include <span>
#include <vector>

#include "stages/dense_weights.hpp"
#include "stages/expert_batch.hpp"
#include "stages/lease_ring.hpp"
#include "stages/memory_cursor.hpp"
#include "stages/tiling.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"visits", MessageType::visit, "visits whose rows per expert are complete"},
    {"experts", MessageType::expert, "records in memory, leased to a visit", true, true},
};
constexpr PortInfo kOutputs[] = {
    {"done", MessageType::expert_done, "experts whose rows are computed"},
    {.name = "released",
     .type = MessageType::slot,
     .help = "slots that are no longer needed",
     .by_expert = true},
};
constexpr MetricInfo kMetrics[] = {
    {"experts_total", "experts computed, once a visit"},
    {"rows_total", "rows of all experts"},
    {"batches_total", "batches of experts computed together"},
    {"multiply_adds_total", "multiply-adds in the three matrices"},
};
enum Output : std::uint32_t { kDone, kReleased };
constexpr std::uint32_t kNoSlot = 0xffffffffU;

// Of a batch, for each worker: many times what starting it costs. One worker alone starts nothing.
constexpr std::uint64_t kBatchMultiplyAdds = 8 * kTileMultiplyAdds;
constexpr std::uint64_t kBatchAlone = kTileMultiplyAdds;

class Compute final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    spec_ = services_->plan.spec;
    has_shared_ = spec_->shared_expert.intermediate_size > 0 && context.owns(0);
    batch_rows_ = ExpertBatch::rows_limit(services_->plan.max_rows, spec_->num_experts_per_token);
    MemoryCursor memory(context.memory());
    batch_.lay_out(memory, spec_->weight_dtype, batch_rows_, widest_ffn(*spec_));
    visits_.resize(services_->steps.size() * 2);
    for (ActiveVisit& active : visits_) {
      for (ReadyList& list : active.ready) list.experts.reserve(spec_->num_experts + 1);
    }
    finished_.reserve(spec_->num_experts + 1);
    experts_ = context.counter("experts_total");
    rows_ = context.counter("rows_total");
    batches_ = context.counter("batches_total");
    multiply_adds_ = context.counter("multiply_adds_total");
    return {};
  }

  Wait on_message(Message& message, Emitter&) override {
    Visit& visit = *message.visit();
    ActiveVisit& active = active_of(visit);
    if (message.type == MessageType::visit) {
      active.visit = &visit;
      active.complete = true;
      active.expected = message.count + (has_shared_ ? 1 : 0);
      if (has_shared_)
        active.ready[kShared].experts.push_back({.expert = spec_->num_experts, .slot = kNoSlot});
    } else {
      take_records(message, visit, active);
    }
    return has_work() ? Wait::input : Wait::none;
  }

  Wait resume(Emitter& out) override {
    compute_batch(out);
    return has_work() ? Wait::output_space : Wait::none;
  }

  static std::uint32_t widest_ffn(const ModelSpec& spec) noexcept {
    return std::max(spec.intermediate_size, spec.shared_expert.intermediate_size);
  }

 private:
  struct Ready {
    std::uint32_t expert;
    std::uint32_t slot;
    const std::byte* record = nullptr;
    std::uint32_t rows_done = 0;
  };
  struct ReadyList {
    std::vector<Ready> experts;  // in order of arrival; see put_fewest_rows_first
    std::size_t next = 0;        // first one not computed
    bool empty() const noexcept { return next == experts.size(); }
  };
  // In the order in which they are computed.
  enum List : std::uint8_t { kPassing, kShared, kKept, kLists };
  struct ActiveVisit {
    Visit* visit = nullptr;
    std::uint32_t expected = 0;  // results of this stage in the visit; known when it is complete
    bool complete = false;
    ReadyList ready[kLists];
    std::uint32_t computed = 0;

    // The list to go on with; null when nothing is ready.
    ReadyList* first_ready() noexcept {
      const auto list =
          std::find_if(std::begin(ready), std::end(ready), [](const ReadyList& l) { return !l.empty(); });
      return list == std::end(ready) ? nullptr : list;
    }
    bool has_work() noexcept { return complete && first_ready() != nullptr; }
  };

  ActiveVisit& active_of(const Visit& visit) {
    return visits_[visit.step->slot * 2 + static_cast<std::size_t>(&visit - visit.step->visits)];
  }

  bool has_work() {
    return std::any_of(visits_.begin(), visits_.end(), [](ActiveVisit& active) { return active.has_work(); });
  }

  static void take_records(Message& message, Visit& visit, ActiveVisit& active) {
    if (const std::unique_ptr<Status> error = message.take_error()) {
      visit.expert_status[message.first] = *error;
      active.ready[kPassing].experts.push_back({.expert = message.first, .slot = kNoSlot});
      return;
    }
    std::uint32_t expert = message.first;
    for (std::uint32_t i = 0; i < message.count; ++i) {
      const LentRecord& record = visit.records[expert];
      active.ready[record.kept ? kKept : kPassing].experts.push_back(
          {.expert = expert, .slot = record.slot, .record = record.data});
      expert = record.next;
    }
  }

  // The oldest complete visit with a ready expert.
  ActiveVisit* oldest() {
    ActiveVisit* best = nullptr;
    for (ActiveVisit& active : visits_) {
      if (!active.has_work()) continue;
      if (best == nullptr || active.visit->serial < best->visit->serial) best = &active;
    }
    return best;
  }

  void compute_batch(Emitter& out) {
    ActiveVisit* active = oldest();
    if (active == nullptr) return;
    Visit& visit = *active->visit;
    pieces_.clear();
    finished_.clear();
    std::uint32_t rows_left = batch_rows_;
    bool shared = false;
    // Slots come back at the end of a batch: one that takes long would let the drive wait for them.
    const std::uint32_t workers = context_->workers();
    const std::uint64_t enough = workers > 1 ? kBatchMultiplyAdds * workers : kBatchAlone;
    ReadyList* list = active->first_ready();
    for (std::uint64_t work = 0; list != nullptr && rows_left > 0 && work < enough;
         list = active->first_ready()) {
      if (list == &active->ready[kPassing]) put_fewest_rows_first(visit, *list);
      Ready& ready = list->experts[list->next];
      const std::uint32_t total = rows_of(visit, ready.expert);
      const std::uint32_t rows = std::min(total - ready.rows_done, rows_left);
      const bool readable = ready.record != nullptr || ready.expert == spec_->num_experts;
      if (readable && rows > 0) work += add_piece(visit, ready, rows);
      shared |= ready.expert == spec_->num_experts;
      ready.rows_done += rows;
      rows_left -= rows;
      if (ready.rows_done < total) break;
      finished_.push_back(ready);
      ++list->next;
    }
    batch_.run(*context_, *services_->kernels, pieces_);
    if (shared) gate_shared(visit);
    batches_->add(1);
    finish(visit, *active, finished_, out);
    retire(*active);
  }

  std::uint32_t rows_of(const Visit& visit, std::uint32_t expert) const {
    if (expert == spec_->num_experts) return visit.step->rows;
    return visit.row_offsets[expert + 1] - visit.row_offsets[expert];
  }

  // Unless one has been begun.
  void put_fewest_rows_first(const Visit& visit, ReadyList& list) const {
    const auto next = list.experts.begin() + static_cast<std::ptrdiff_t>(list.next);
    if (next->rows_done > 0) return;
    std::iter_swap(next, std::min_element(next, list.experts.end(), [&](const Ready& a, const Ready& b) {
                     return rows_of(visit, a.expert) < rows_of(visit, b.expert);
                   }));
  }

  // Returns the multiply-adds of the piece.
  std::uint64_t add_piece(const Visit& visit, const Ready& ready, std::uint32_t rows) {
    const Step& step = *visit.step;
    ExpertPiece piece;
    piece.x = step.normed;
    piece.x_quantized = step.normed_quantized;
    piece.rows = rows;
    if (ready.expert == spec_->num_experts) {
      const FfnMatrices& shared = services_->dense->layers[visit.layer].shared;
      piece.gate = shared.gate;
      piece.up = shared.up;
      piece.down = shared.down;
      piece.first_row = ready.rows_done;
      piece.out = step.shared_out + std::size_t{ready.rows_done} * spec_->hidden_size;
    } else {
      const ExpertMatrices expert = expert_matrices(services_->container->layout(), ready.record);
      piece.gate = expert.gate;
      piece.up = expert.up;
      piece.down = expert.down;
      const std::uint32_t place = visit.row_offsets[ready.expert] + ready.rows_done;
      piece.row_index = visit.row_list + place;
      piece.out = step.expert_out + std::size_t{place} * spec_->hidden_size;
    }
    rows_->add(rows);
    const std::uint64_t work = std::uint64_t{3} * rows * piece.gate.inputs * piece.gate.outputs;
    multiply_adds_->add(work);
    pieces_.push_back(piece);
    return work;
  }

  // Rows of the shared expert computed in this batch, times sigmoid(w . x).
  void gate_shared(const Visit& visit) {
    const float* gate = services_->dense->layers[visit.layer].shared_gate;
    if (gate == nullptr) return;
    const kernels::KernelTable& table = *services_->kernels;
    const Step& step = *visit.step;
    const std::size_t hidden = spec_->hidden_size;
    for (const ExpertPiece& piece : pieces_) {
      if (piece.row_index != nullptr) continue;
      for (std::uint32_t i = 0; i < piece.rows; ++i) {
        const float logit = table.dot(gate, step.normed + (piece.first_row + i) * hidden, hidden);
        const float factor = 1.0F / (1.0F + table.exp(-logit));
        float* row = piece.out + i * hidden;
        for (std::size_t h = 0; h < hidden; ++h) row[h] *= factor;
      }
    }
  }

  // Tells of the results of a batch, and gives the slots back.
  void finish(Visit& visit, ActiveVisit& active, std::span<const Ready> done, Emitter& out) {
    if (done.empty()) return;
    for (std::size_t i = 1; i < done.size(); ++i) visit.next_done[done[i - 1].expert] = done[i].expert;
    out.emit(kDone, {.type = MessageType::expert_done,
                     .first = done.front().expert,
                     .count = static_cast<std::uint32_t>(done.size()),
                     .object = &visit});
    while (leases_.size() < out.owners(kReleased)) leases_.emplace_back(services_->plan);
    for (std::uint32_t owner = 0; owner < out.owners(kReleased); ++owner) {
      LeaseRing& leases = leases_[owner];
      leases.begin(done.size());
      for (const Ready& ready : done) {
        if (ready.slot != kNoSlot && out.owner(kReleased, ready.expert) == owner)
          leases.add({.slot = ready.slot, .expert = ready.expert});
      }
      if (const Message message = leases.message(); message.count > 0) out.emit_to(kReleased, owner, message);
    }
    experts_->add(done.size());
    active.computed += static_cast<std::uint32_t>(done.size());
  }

  // After the stage's last expert of a visit its place is free for the visit that reuses the object. The
  // visit itself is not looked at: with its last result out, its step may be done and in use again.
  static void retire(ActiveVisit& active) {
    if (active.computed < active.expected) return;
    active.visit = nullptr;
    active.complete = false;
    for (ReadyList& list : active.ready) {
      list.experts.clear();
      list.next = 0;
    }
    active.computed = 0;
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  const ModelSpec* spec_ = nullptr;
  bool has_shared_ = false;  // the shared expert goes with expert 0
  std::uint32_t batch_rows_ = 0;
  ExpertBatch batch_;
  std::vector<ActiveVisit> visits_;  // [steps, 2]
  std::vector<ExpertPiece> pieces_;
  std::vector<Ready> finished_;    // by the batch
  std::vector<LeaseRing> leases_;  // by owner of `released`
  Counter *experts_ = nullptr, *rows_ = nullptr, *batches_ = nullptr, *multiply_adds_ = nullptr;
};

}  // namespace

const StageInfo kComputeInfo = {
    .kind = "compute",
    .help = "runs each expert over all rows of the step that picked it",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 0,
    .partitioned = true,
    .memory = {.dense = true, .steps = true},
};

std::unique_ptr<Stage> create_compute() { return std::make_unique<Compute>(); }

std::uint64_t compute_memory_bytes(const PlanInputs& inputs) {
  MemoryCursor measure;
  ExpertBatch batch;
  batch.lay_out(measure, inputs.spec->weight_dtype,
                ExpertBatch::rows_limit(inputs.max_rows, inputs.spec->num_experts_per_token),
                Compute::widest_ffn(*inputs.spec));
  return measure.used();
}

}  // namespace colibri
