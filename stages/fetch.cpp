// fetch: demands and hints in, records in slots out.
//
// A demand is never refused: what finds no slot waits in a table of fixed size (at most
// two visits a step and every expert in each). Demands are served in the order of arrival,
// which makes the minimum of one slot enough: all demands of a visit arrive before any of
// the same step's next one, and the earliest visit can always be computed.
// Hints get only slots that no demand wants, and leave one free. A record is never read
// while it is being read or lies in a slot: one read per expert, layer and step.
#include "stages/fetch.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <colibri/services.hpp>

#include "io/read/read_backend.hpp"
#include "stages/slot_table.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"released", MessageType::slot, "slots whose lease ended", true, false, true},
    {"demand", MessageType::demand, "experts that a wave needs"},
    {"hints", MessageType::hint, "experts that the next visits may need", false},
};
constexpr PortInfo kOutputs[] = {
    {"experts", MessageType::expert, "records that lie in a slot, leased to their visit"},
    {"spent", MessageType::hint, "hint batches that were read, for reuse", false},
};
constexpr ParamInfo kParams[] = {
    {.name = "backend", .type = ParamType::choice, .unit = "", .default_value = "auto",
     .choices = "auto|io_uring|pread", .help = "how reads are issued; auto: io_uring, else a pool of threads"},
    {.name = "direct", .type = ParamType::choice, .unit = "", .default_value = "auto", .choices = "auto|on|off",
     .help = "O_DIRECT; auto: on where the file system takes it"},
    {.name = "lanes", .type = ParamType::integer, .unit = "", .default_value = "auto", .minimum = 1, .maximum = 256,
     .allow_auto = true, .help = "reads in flight at a time; auto: 16 with io_uring, 8 with pread"},
    {.name = "inflight_bytes", .type = ParamType::bytes, .unit = "bytes", .default_value = "64MiB", .minimum = 4096,
     .help = "bytes being read at a time; also sets how many transit slots are kept free"},
    {.name = "read_bytes", .type = ParamType::bytes, .unit = "bytes", .default_value = "1MiB", .minimum = 4096,
     .help = "longer records are read in pieces of this size"},
    {.name = "hints", .type = ParamType::boolean, .unit = "", .default_value = "true",
     .help = "reads ahead what the predictor names; false: demands only"},
};
constexpr MetricInfo kMetrics[] = {
    {"demands_total", "records demanded: distinct experts over all visits"},
    {"hits_total", "demands whose record was resident, or read ahead and landed"},
    {"reads_total", "records read"},
    {"bytes_read_total", "bytes of the records read"},
    {"distinct_bytes_total", "bytes of the distinct records read for each visit, summed over visits"},
    {"failed_reads_total", "records that could not be read"},
    {"hint_reads_total", "records read ahead"},
    {"useful_hints_total", "records read ahead that had landed when they were demanded"},
    {"late_hints_total", "records read ahead that were still in flight when they were demanded"},
    {"wasted_hint_bytes_total", "bytes read ahead and never demanded"},
    {"resident_records", "records resident at the end"},
    {"peak_pending_demands", "most demands that waited for a slot at a time"},
};
enum Output : std::uint32_t { kExperts, kSpent };
enum Input : std::uint8_t { kReleased, kDemand, kHints };

// Limit on waiting for reads in flight when the pipeline stops.
constexpr std::chrono::seconds kCloseLimit{30};

class Fetch final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    const SlotRegion& region = services_->slots;
    experts_ = spec.num_experts;
    moe_layers_.clear();
    for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers(); layer = spec.next_moe_layer(layer + 1)) {
      moe_layers_.push_back(layer);
    }
    known_.assign(services_->steps.size(), {});
    demanded_keys_.assign(services_->steps.size(), std::vector<std::uint64_t>(moe_layers_.size() * experts_));
    last_key_.assign(std::size_t{spec.num_moe_layers()} * experts_, 0);
    waiting_.assign(region.slots, {});
    for (auto& waiters : waiting_) waiters.reserve(services_->plan.in_flight);
    table_ = std::make_unique<SlotTable>(spec.num_moe_layers(), experts_, region.slots, region.transit);
    use_hints_ = context.boolean("hints");
    declare_counters(context);

    ReadBackendOptions options;
    const std::string_view backend = context.text("backend");
    options.kind = backend == "pread"      ? ReadKind::pread
                   : backend == "io_uring" ? ReadKind::io_uring
                                           : ReadKind::automatic;
    const std::string_view direct = context.text("direct");
    options.direct = direct == "on" ? DirectIo::on : direct == "off" ? DirectIo::off : DirectIo::automatic;
    options.lanes = context.is_auto("lanes") ? 0 : static_cast<std::uint32_t>(context.integer("lanes"));
    options.max_outstanding = region.slots;
    options.inflight_bytes = context.integer("inflight_bytes");
    options.read_bytes_max = context.integer("read_bytes");
    options.registered_region = {region.base, region.stride * region.slots};
    options.log = services_->log;
    CompletionPort& port = context.completion_port();
    auto opened = open_read_backend(services_->container->expert_files(), options, [&port](ReadCompletion&& done) {
      Message message{.first = static_cast<std::uint32_t>(done.tag)};
      if (!done.status) message.error = new Status(std::move(done.status));
      port.post(message);
    });
    if (!opened) return std::move(opened).status();
    backend_ = std::move(opened).value();
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    switch (message.port) {
      case kCompletionPort: completed(message, out); break;
      case kReleased: table_->release(message.first); break;
      case kDemand: demanded(message, out); break;
      case kHints: hinted(*message.hints(), out); break;
      default: assert(false);
    }
    issue_reads(out);
    return Wait::none;
  }

  void stop() noexcept override {
    if (backend_ == nullptr) return;
    if (!backend_->close(kCloseLimit)) {
      // The kernel may still write into the slots: leak the backend, the region is kept by its owner.
      services_->fail_job(Status(ErrorCode::timeout, "reads did not end in 30 s after the pipeline stopped; the drive "
                                                     "hangs: check it with `dmesg`"));
      static_cast<void>(backend_.release());
    }
    backend_.reset();
    if (table_ != nullptr) resident_->set(table_->residents());
  }

 private:
  struct Waiter {
    Visit* visit;
    std::uint32_t expert;
  };
  struct Pending {
    Visit* visit;
    std::uint32_t expert;
    std::uint32_t record;
    std::uint64_t key;
  };
  struct Hint {
    std::uint32_t record;
    float probability;
    std::uint64_t key;
  };

  // Names a visit before it exists, so that hints can be counted for it. Ordinal -1 is before all visits of
  // the step. Never 0.
  std::uint64_t key_of(std::uint64_t step_serial, std::int64_t ordinal) const {
    return (step_serial + 1) * key_stride() + static_cast<std::uint64_t>(ordinal + 1);
  }
  std::uint64_t key_stride() const { return moe_layers_.size() + 1; }

  // True when all demands of the visit have arrived already.
  bool known(std::uint64_t key) const {
    const std::uint64_t step = key / key_stride();
    bool newer_step = false;
    for (const std::uint64_t known : known_) {
      if (known / key_stride() == step) return key <= known;
      newer_step |= known / key_stride() > step;
    }
    return newer_step;
  }

  void demanded(const Message& message, Emitter& out) {
    Visit& visit = *message.visit();
    const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(visit.layer);
    const std::uint64_t key = key_of(visit.step_serial, ordinal);
    if (message.first == 0) table_->begin_visit(ordinal);
    for (std::uint32_t i = message.first; i < message.first + message.count; ++i) {
      const std::uint32_t expert = visit.experts[i];
      const std::uint32_t record = table_->record_of(ordinal, expert);
      table_->used(record);
      demands_->add(1);
      demanded_keys_[visit.step->slot][record] = key;
      serve({&visit, expert, record, key}, out);
    }
    peak_pending_->set(std::max<std::uint64_t>(peak_pending_->get(), pending_.size()));
    // A step shows here with its first demand: what then is older than every step shown is over.
    std::uint64_t& known = known_[visit.step->slot];
    known = std::max(known, key_of(visit.step_serial, -1));
    if (message.last) {
      known = key;
      drop_stale_hints();
    }
  }

  // A record that lies in a slot is handed out; one being read gets another waiter; else it waits for a slot.
  void serve(const Pending& demand, Emitter& out) {
    const std::uint32_t index = table_->find(demand.record);
    if (index == SlotTable::kNone) {
      pending_.push_back(demand);
      return;
    }
    const SlotTable::Slot& slot = table_->slot(index);
    const bool was_hint = slot.hinted;
    table_->lease(index);
    if (slot.state == SlotTable::State::landed) {
      hits_->add(1);
      if (was_hint) useful_hints_->add(1);
      hand_out(*demand.visit, demand.expert, index, out);
      return;
    }
    if (was_hint) {
      late_hints_->add(1);
      backend_->promote(index);
    }
    waiting_[index].push_back({demand.visit, demand.expert});
  }

  void hand_out(Visit& visit, std::uint32_t expert, std::uint32_t index, Emitter& out) {
    const SlotRegion& region = services_->slots;
    out.emit(kExperts, {.type = MessageType::expert, .first = expert, .count = index, .object = &visit,
                        .data = region.base + region.stride * index});
  }

  void completed(Message& message, Emitter& out) {
    const std::uint32_t index = message.first;
    const SlotTable::Slot slot = table_->slot(index);
    std::vector<Waiter>& waiters = waiting_[index];
    if (message.error == nullptr) {
      count_read(slot);
      table_->landed(index);
      for (const Waiter& waiter : waiters) hand_out(*waiter.visit, waiter.expert, index, out);
      waiters.clear();
      if (slot.leases == 0 && !slot.hinted) drop_hint(index);  // its visit passed while it was being read
      return;
    }
    const std::unique_ptr<Status> error(message.error);
    message.error = nullptr;
    *error = std::move(*error).at("layer " + std::to_string(moe_layers_[table_->layer_of(slot.record)]) + ", expert " +
                                  std::to_string(slot.record % experts_));
    if (error->code() == ErrorCode::cancelled) {
      // A stale hint. A demand that came between cancel and now starts over.
      for (const Waiter& waiter : waiters) pending_.push_front({waiter.visit, waiter.expert, slot.record, slot.visit});
      waiters.clear();
      table_->failed(index);
      return;
    }
    failed_reads_->add(1);
    for (const Waiter& waiter : waiters) {
      // No slot stays behind a failed read; compute passes the error on to the rows.
      out.emit(kExperts, {.type = MessageType::expert, .first = waiter.expert, .count = SlotTable::kNone,
                          .object = waiter.visit, .error = new Status(*error)});
    }
    waiters.clear();
    table_->failed(index);
  }

  // Hints for visits whose demands have all arrived are worth no more: those not read are forgotten, those in
  // the queue of the backend cancelled, those in slots stay or go by their probability.
  void drop_stale_hints() {
    std::erase_if(hints_, [this](const Hint& hint) { return known(hint.key); });
    for (std::uint32_t index = 0; index < table_->size() && table_->hinted_slots() > 0; ++index) {
      const SlotTable::Slot& slot = table_->slot(index);
      if (!slot.hinted || !known(slot.visit)) continue;
      if (slot.state == SlotTable::State::landed) {
        drop_hint(index);
      } else {
        table_->hint_passed(index);  // still being read: see completed
        backend_->cancel(index);
      }
    }
  }

  void drop_hint(std::uint32_t index) {
    wasted_hint_bytes_->add(record_bytes());
    table_->hint_passed(index);
  }

  void hinted(HintBatch& batch, Emitter& out) {
    if (use_hints_ && batch.expert_count > 0) {
      const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(batch.target_layer);
      const std::uint64_t key = key_of(batch.step_serial, ordinal);
      for (std::uint32_t i = 0; i < batch.expert_count && !known(key); ++i) {
        add_hint({table_->record_of(ordinal, batch.experts[i]), batch.probabilities[i], key});
      }
    }
    if (out.room(kSpent) > 0) out.emit(kSpent, {.type = MessageType::hint, .object = &batch});
  }

  // True when the hint's own visit has demanded the record: it is being served, or was, and a read for the
  // hint would be the second one for this visit.
  bool demanded_already(const Hint& hint) const {
    return std::any_of(demanded_keys_.begin(), demanded_keys_.end(),
                       [&hint](const std::vector<std::uint64_t>& keys) { return keys[hint.record] == hint.key; });
  }

  void add_hint(const Hint& hint) {
    if (table_->find(hint.record) != SlotTable::kNone || demanded_already(hint)) return;
    const auto same = std::find_if(hints_.begin(), hints_.end(), [&](const Hint& h) { return h.record == hint.record; });
    if (same != hints_.end()) {
      same->probability = std::max(same->probability, hint.probability);
    } else {
      hints_.push_back(hint);
    }
    std::stable_sort(hints_.begin(), hints_.end(), [](const Hint& a, const Hint& b) {
      return a.key != b.key ? a.key < b.key : a.probability > b.probability;
    });
  }

  void issue_reads(Emitter& out) {
    while (!pending_.empty()) {
      const Pending demand = pending_.front();
      // Another step in flight may have had the same record read meanwhile; then it is simply shared.
      if (const std::uint32_t present = table_->find(demand.record); present != SlotTable::kNone) {
        pending_.pop_front();
        table_->lease(present);
        if (table_->slot(present).state == SlotTable::State::landed) {
          hand_out(*demand.visit, demand.expert, present, out);
        } else {
          waiting_[present].push_back({demand.visit, demand.expert});
        }
        continue;
      }
      const std::uint32_t index = table_->begin_read(demand.record, demand.key, false);
      if (index == SlotTable::kNone) return;
      pending_.pop_front();
      table_->lease(index);
      waiting_[index].push_back({demand.visit, demand.expert});
      read(index, true);
    }
    while (!hints_.empty()) {
      const Hint hint = hints_.front();
      if (table_->find(hint.record) != SlotTable::kNone || demanded_already(hint)) {
        hints_.erase(hints_.begin());
        continue;
      }
      // One slot stays free for a demand.
      if (table_->free_slots() < 2) return;
      hints_.erase(hints_.begin());
      const std::uint32_t index = table_->begin_read(hint.record, hint.key, true);
      hint_reads_->add(1);
      read(index, false);
    }
  }

  void read(std::uint32_t index, bool demand) {
    const SlotTable::Slot& slot = table_->slot(index);
    const std::uint32_t layer = moe_layers_[table_->layer_of(slot.record)];
    const ExpertRecord record = services_->container->record(layer, slot.record % experts_);
    const SlotRegion& region = services_->slots;
    ReadRequest request;
    request.tag = index;
    request.file = record.file;
    request.offset = record.offset;
    request.destination = region.base + region.stride * index;
    request.length = record.length;
    request.chunk_hashes = record.chunk_hashes;
    request.payload_length = services_->container->layout().payload_bytes;
    request.chunk_bytes = services_->plan.spec->expert_chunk_size;
    request.demand = demand;
    if (Status submitted = backend_->submit(request); !submitted) {
      context_->completion_port().post({.first = index, .error = new Status(std::move(submitted))});
    }
  }

  // A record belongs to the visit that it was read for: a second read for the same one is not distinct.
  void count_read(const SlotTable::Slot& slot) {
    reads_->add(1);
    bytes_read_->add(record_bytes());
    if (last_key_[slot.record] != slot.visit) distinct_bytes_->add(record_bytes());
    last_key_[slot.record] = slot.visit;
  }

  std::uint64_t record_bytes() const { return services_->container->layout().record_bytes; }

  void declare_counters(StageContext& context) {
    demands_ = context.counter("demands_total");
    hits_ = context.counter("hits_total");
    reads_ = context.counter("reads_total");
    bytes_read_ = context.counter("bytes_read_total");
    distinct_bytes_ = context.counter("distinct_bytes_total");
    failed_reads_ = context.counter("failed_reads_total");
    hint_reads_ = context.counter("hint_reads_total");
    useful_hints_ = context.counter("useful_hints_total");
    late_hints_ = context.counter("late_hints_total");
    wasted_hint_bytes_ = context.counter("wasted_hint_bytes_total");
    resident_ = context.counter("resident_records");
    peak_pending_ = context.counter("peak_pending_demands");
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::uint32_t experts_ = 0;
  bool use_hints_ = true;
  std::vector<std::uint32_t> moe_layers_;          // [ordinals] layer index
  std::unique_ptr<SlotTable> table_;
  std::unique_ptr<ReadBackend> backend_;
  std::deque<Pending> pending_;                    // demands without a slot, oldest first
  std::vector<Hint> hints_;                        // not yet read: nearest visit first, then likeliest
  std::vector<std::vector<Waiter>> waiting_;       // [slots] visits that wait for the read into the slot
  std::vector<std::vector<std::uint64_t>> demanded_keys_;  // [steps in flight][records] visit that demanded it last
  std::vector<std::uint64_t> last_key_;            // [records] visit that the record was last read for
  std::vector<std::uint64_t> known_;               // [steps in flight] last visit whose demands have all arrived
  Counter *demands_ = nullptr, *hits_ = nullptr, *reads_ = nullptr, *bytes_read_ = nullptr;
  Counter *distinct_bytes_ = nullptr, *failed_reads_ = nullptr, *hint_reads_ = nullptr, *useful_hints_ = nullptr;
  Counter *late_hints_ = nullptr, *wasted_hint_bytes_ = nullptr, *resident_ = nullptr, *peak_pending_ = nullptr;
};

}  // namespace

const StageInfo kFetchInfo = {
    .kind = "fetch",
    .help = "reads expert records into slots, each at most once a visit; keeps the likeliest resident",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 0,
};

std::unique_ptr<Stage> create_fetch() { return std::make_unique<Fetch>(); }

}  // namespace colibri
