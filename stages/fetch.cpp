// fetch: demands and hints in, records in slots out.
//
// A demand is never refused: what finds no slot waits in a table of fixed size (at most
// two visits a step and every expert in each). Demands are served in the order of arrival,
// which makes the minimum of one slot enough: all demands of a visit arrive before any of
// the same step's next one, and the earliest visit can always be computed.
// Hints get only slots that no demand wants, and leave one free. A record is never read
// while it is being read or lies in a slot: one read per expert, layer and step.
// When no read ends for `deadline_ms`, those older than that fail their demands; their slots
// stay out of use until the drive has answered.
#include "stages/fetch.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <colibri/services.hpp>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "io/read/fault_backend.hpp"
#include "io/read/read_backend.hpp"
#include "stages/fixed_ring.hpp"
#include "stages/hint_list.hpp"
#include "stages/read_arrivals.hpp"
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
    {.name = "backend",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "auto",
     .choices = "auto|io_uring|pread",
     .help = "how reads are issued; auto: io_uring, else a pool of threads"},
    {.name = "direct",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "auto",
     .choices = "auto|on|off",
     .help = "O_DIRECT; auto: on where the file system takes it"},
    {.name = "lanes",
     .type = ParamType::integer,
     .unit = "",
     .default_value = "auto",
     .minimum = 1,
     .maximum = 256,
     .allow_auto = true,
     .help = "reads in flight at a time; auto: 16 with io_uring, 8 with pread"},
    {.name = "inflight_bytes",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "64MiB",
     .minimum = 4096,
     .help = "bytes being read at a time; also sets how many transit slots are kept free"},
    {.name = "read_bytes",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "1MiB",
     .minimum = 4096,
     .help = "longer records are read in pieces of this size"},
    {.name = "hints",
     .type = ParamType::boolean,
     .unit = "",
     .default_value = "true",
     .help = "reads ahead what the predictor names; false: demands only"},
    {.name = "deadline_ms",
     .type = ParamType::integer,
     .unit = "ms",
     .default_value = "30000",
     .minimum = 10,
     .maximum = 86'400'000,
     .help =
         "a read this old fails when no other read has ended meanwhile; also the wait for reads at the end"},
};
constexpr MetricInfo kMetrics[] = {
    {"demands_total", "records demanded: distinct experts over all visits"},
    {"hits_total", "demands whose record was resident, or read ahead and landed"},
    {"reads_total", "records read"},
    {"bytes_read_total", "bytes of the records read"},
    {"distinct_bytes_total", "bytes of the distinct records read for each visit, summed over visits"},
    {"failed_reads_total", "records that could not be read, or not before the deadline"},
    {"hint_reads_total", "records read ahead"},
    {"useful_hints_total", "records read ahead that had landed when they were demanded"},
    {"late_hints_total", "records read ahead that were still in flight when they were demanded"},
    {"wasted_hint_bytes_total", "bytes read ahead and never demanded"},
    {"resident_records", "records resident at the end"},
    {"peak_pending_demands", "most demands that waited for a slot at a time"},
};
enum Output : std::uint32_t { kExperts, kSpent };
enum Input : std::uint8_t { kReleased, kDemand, kHints };

// Looks for reads past their deadline, in one deadline.
constexpr int kTicksPerDeadline = 4;

class Fetch final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    const SlotRegion& region = services_->slots;
    experts_ = spec.num_experts;
    moe_layers_.clear();
    for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers();
         layer = spec.next_moe_layer(layer + 1)) {
      moe_layers_.push_back(layer);
    }
    known_.assign(services_->steps.size(), {});
    demanded_keys_.assign(services_->steps.size(), std::vector<std::uint64_t>(moe_layers_.size() * experts_));
    last_key_.assign(std::size_t{spec.num_moe_layers()} * experts_, 0);
    waiting_.assign(region.slots, {});
    for (auto& waiters : waiting_) waiters.reserve(services_->plan.in_flight);
    // A step's demands of one visit may still wait while those of the next come in.
    pending_ = FixedRing<Pending>(services_->steps.size() * 2 * experts_);
    hints_ = HintList(last_key_.size());
    submitted_.assign(region.slots, {});
    overdue_.assign(region.slots, 0);
    deadline_ = std::chrono::milliseconds(context.integer("deadline_ms"));
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
    options.faults = services_->read_faults;
    arrivals_ = std::make_shared<ReadArrivals>(context.completion_port(), region.slots);
    if (services_->log) {
      options.log = [arrivals = arrivals_, log = services_->log](std::string line) {
        arrivals->say(log, std::move(line));
      };
    }
    // Reads of a drive that hangs outlive the stage, and look at the container's checksums when they come.
    auto deliver = [arrivals = arrivals_, container = services_->container->weak_from_this().lock()](
                       ReadCompletion&& done) { arrivals->arrived(std::move(done)); };
    COLIBRI_ASSIGN_OR_RETURN(
        backend_, open_read_backend(services_->container->expert_files(), options, std::move(deliver)));
    try {
      watch_ = std::make_unique<ReadWatch>(arrivals_, deadline_ / kTicksPerDeadline);
    } catch (const std::system_error& error) {
      return {ErrorCode::out_of_memory, std::string("a thread to watch reads was refused: ") + error.what() +
                                            "; raise the limit (ulimit -u)"};
    }
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    switch (message.port) {
      case kCompletionPort:
        if (message.first == ReadArrivals::kTick) {
          check_deadlines(out);
        } else {
          completed(message.first, out);
        }
        break;
      case kReleased: released(message.first); break;
      case kDemand: demanded(message, out); break;
      case kHints: hinted(*message.hints(), out); break;
      default: assert(false);
    }
    issue_reads(out);
    return Wait::none;
  }

  void stop() noexcept override {
    if (backend_ == nullptr) return;
    watch_.reset();
    if (!backend_->close(deadline_)) {
      // The kernel may still write into the slots: neither they nor the backend may be freed, ever.
      arrivals_->close();
      services_->leak_slots();
      services_->fail_job(
          Status(ErrorCode::timeout, "reads have not ended " + std::to_string(deadline_.count()) +
                                         " ms after the last step; the drive hangs: check it with "
                                         "`dmesg`, then start again"));
      static_cast<void>(backend_.release());
    }
    backend_.reset();
    if (table_ != nullptr) resident_->set(table_->residents());
  }

 private:
  using Clock = std::chrono::steady_clock;
  // An expert that a visit demands.
  struct Pending {
    Visit* visit = nullptr;
    std::uint32_t expert = 0;
    std::uint32_t record = 0;
    std::uint64_t key = 0;
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

  // A slot comes back from where its record went. Anything else means edges that bypass the stage that copied
  // it.
  void released(std::uint32_t slot) {
    if (slot < table_->size() && table_->slot(slot).leases > 0) {
      table_->release(slot);
      return;
    }
    services_->fail_job(
        Status(ErrorCode::invalid_input, "a slot came back to " + std::string(context_->name()) +
                                             " that it has not lent: " + std::to_string(slot) +
                                             "; let slots return by the stages that records passed"));
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
    if (slot.state == SlotTable::State::landed) {
      hits_->add(1);
      if (slot.hinted && !slot.used) useful_hints_->add(1);
    } else if (slot.hinted && !slot.used) {
      late_hints_->add(1);
    }
    share(demand, index, out);
  }

  void share(const Pending& demand, std::uint32_t index, Emitter& out) {
    if (overdue_[index] != 0) {
      refuse(demand, overdue_error(index), out);
      return;
    }
    const SlotTable::Slot& slot = table_->slot(index);
    if (slot.state == SlotTable::State::reading && slot.hinted) backend_->promote(index);
    table_->lease(index, demand.key);
    if (slot.state == SlotTable::State::landed) {
      hand_out(*demand.visit, demand.expert, index, out);
    } else {
      waiting_[index].push_back(demand);
    }
  }

  // Says that a demand cannot be met; no slot goes with it, and compute passes the error on to the rows.
  static void refuse(const Pending& demand, const Status& error, Emitter& out) {
    out.emit(kExperts, {.type = MessageType::expert,
                        .first = demand.expert,
                        .count = SlotTable::kNone,
                        .object = demand.visit,
                        .error = new Status(error)});
  }

  void hand_out(Visit& visit, std::uint32_t expert, std::uint32_t index, Emitter& out) {
    const SlotRegion& region = services_->slots;
    out.emit(kExperts, {.type = MessageType::expert,
                        .first = expert,
                        .count = index,
                        .object = &visit,
                        .data = region.base + region.stride * index});
  }

  void completed(std::uint32_t index, Emitter& out) {
    Status status = arrivals_->take_status(index);
    const SlotTable::Slot slot = table_->slot(index);
    std::vector<Pending>& waiters = waiting_[index];
    last_arrival_ = Clock::now();
    watch_->reads_in_flight(--in_flight_ > 0);
    if (overdue_[index] != 0) {
      // Nobody waits for it any more.
      overdue_[index] = 0;
      --overdue_slots_;
      table_->failed(index);
    } else if (status.is_ok()) {
      count_read(slot);
      table_->landed(index);
      for (const Pending& waiter : waiters) hand_out(*waiter.visit, waiter.expert, index, out);
      if (slot.leases == 0 && !slot.hinted) drop_hint(index);  // its visit passed while it was being read
    } else if (status.code() == ErrorCode::cancelled) {
      // A stale hint. Demands that came between cancel and now start over.
      for (const Pending& waiter : waiters) pending_.push_front(waiter);
      table_->failed(index);
    } else {
      status = std::move(status).at(name_of(slot.record));
      failed_reads_->add(1);
      for (const Pending& waiter : waiters) refuse(waiter, status, out);
      table_->failed(index);
    }
    waiters.clear();
  }

  // Fails the demands of reads past their deadline. Their slots stay taken until their completions arrive:
  // the drive may still write into them. A read that waits behind others for its turn is not late by itself,
  // so the deadline starts anew with each completion.
  void check_deadlines(Emitter& out) {
    watch_->tick_taken();
    const Clock::time_point now = Clock::now();
    for (std::uint32_t index = 0; index < table_->size() && in_flight_ > overdue_slots_; ++index) {
      if (table_->slot(index).state != SlotTable::State::reading || overdue_[index] != 0) continue;
      if (now - std::max(submitted_[index], last_arrival_) <= deadline_) continue;
      overdue_[index] = 1;
      ++overdue_slots_;
      failed_reads_->add(1);
      table_->hint_passed(index);
      const Status error = overdue_error(index);
      for (const Pending& waiter : waiting_[index]) refuse(waiter, error, out);
      waiting_[index].clear();
    }
  }

  // With no slot free, none leased, and no read in flight but those past their deadline, demands have nothing
  // to wait for.
  void refuse_hopeless(Emitter& out) {
    if (overdue_slots_ == 0 || in_flight_ > overdue_slots_) return;
    std::uint32_t overdue = 0;
    for (std::uint32_t index = 0; index < table_->size(); ++index) {
      if (overdue_[index] != 0) {
        overdue = index;
      } else if (table_->slot(index).leases > 0) {
        return;
      }
    }
    const Status error = overdue_error(overdue);
    while (!pending_.empty()) refuse(pending_.pop_front(), error, out);
  }

  Status overdue_error(std::uint32_t index) const {
    const std::uint32_t record = table_->slot(index).record;
    const ExpertRecord place =
        services_->container->record(moe_layers_[table_->layer_of(record)], record % experts_);
    return Status(ErrorCode::timeout,
                  "the drive has not answered a read in " + std::to_string(deadline_.count()) +
                      " ms: " + services_->container->expert_files()[place.file].string() + ", offset " +
                      std::to_string(place.offset) + "; check the drive with `dmesg`, or raise deadline_ms")
        .at(name_of(record));
  }

  std::string name_of(std::uint32_t record) const {
    return "layer " + std::to_string(moe_layers_[table_->layer_of(record)]) + ", expert " +
           std::to_string(record % experts_);
  }

  // Hints for visits whose demands have all arrived are worth no more: those not read are forgotten, those in
  // the queue of the backend cancelled, those in slots stay or go by their probability.
  void drop_stale_hints() {
    hints_.drop([this](std::uint64_t key) { return known(key); });
    for (std::uint32_t index = 0; index < table_->size() && table_->hinted_slots() > 0; ++index) {
      const SlotTable::Slot& slot = table_->slot(index);
      if (!slot.hinted || !known(slot.visit)) continue;
      if (slot.state == SlotTable::State::landed) {
        drop_hint(index);
      } else {
        table_->hint_passed(index);  // still being read: see completed
        if (slot.leases == 0) backend_->cancel(index);
      }
    }
  }

  void drop_hint(std::uint32_t index) {
    if (!table_->slot(index).used) wasted_hint_bytes_->add(record_bytes());
    table_->hint_passed(index);
  }

  void hinted(HintBatch& batch, Emitter& out) {
    for (std::uint32_t i = 0; use_hints_ && i < batch.target_count; ++i) take_hints(batch, batch.targets[i]);
    if (out.room(kSpent) > 0) out.emit(kSpent, {.type = MessageType::hint, .object = &batch});
  }

  void take_hints(const HintBatch& batch, const HintTarget& target) {
    const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(target.layer);
    const std::uint64_t key = key_of(batch.step_serial, ordinal);
    for (std::uint32_t i = 0; i < target.expert_count && !known(key); ++i) {
      const Hint hint{table_->record_of(ordinal, target.experts[i]), target.probabilities[i], key};
      if (table_->find(hint.record) == SlotTable::kNone && !demanded_already(hint)) hints_.add(hint);
    }
  }

  // True when the hint's own visit has demanded the record: it is being served, or was, and a read for the
  // hint would be the second one for this visit.
  bool demanded_already(const Hint& hint) const {
    return std::any_of(
        demanded_keys_.begin(), demanded_keys_.end(),
        [&hint](const std::vector<std::uint64_t>& keys) { return keys[hint.record] == hint.key; });
  }

  void issue_reads(Emitter& out) {
    while (!pending_.empty()) {
      const Pending demand = pending_.front();
      // Another step in flight may have had the same record read meanwhile; then it is simply shared.
      if (const std::uint32_t present = table_->find(demand.record); present != SlotTable::kNone) {
        pending_.pop_front();
        share(demand, present, out);
        continue;
      }
      const std::uint32_t index = table_->begin_read(demand.record, demand.key, false);
      if (index == SlotTable::kNone) {
        refuse_hopeless(out);
        return;
      }
      pending_.pop_front();
      table_->lease(index, demand.key);
      waiting_[index].push_back(demand);
      read(index, true);
    }
    while (!hints_.empty()) {
      const Hint hint = hints_.front();
      if (table_->find(hint.record) != SlotTable::kNone || demanded_already(hint)) {
        hints_.pop_front();
        continue;
      }
      // One slot stays free for a demand.
      if (table_->free_slots() < 2) return;
      hints_.pop_front();
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
    submitted_[index] = Clock::now();
    watch_->reads_in_flight(++in_flight_ > 0);
    if (Status submitted = backend_->submit(request); !submitted) {
      arrivals_->arrived({.tag = index, .status = std::move(submitted)});
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
  std::vector<std::uint32_t> moe_layers_;  // [ordinals] layer index
  std::unique_ptr<SlotTable> table_;
  std::unique_ptr<ReadBackend> backend_;
  std::shared_ptr<ReadArrivals> arrivals_;
  std::unique_ptr<ReadWatch> watch_;
  FixedRing<Pending> pending_;                 // demands without a slot, oldest first
  HintList hints_;                             // not yet read
  std::vector<std::vector<Pending>> waiting_;  // [slots] demands that wait for the read into the slot
  std::vector<Clock::time_point> submitted_;   // [slots] when the read into it was
  std::vector<std::uint8_t> overdue_;          // [slots] its read is past the deadline and not completed
  std::uint32_t overdue_slots_ = 0;
  std::uint32_t in_flight_ = 0;  // reads submitted and not completed
  Clock::time_point last_arrival_;
  std::chrono::milliseconds deadline_{};
  std::vector<std::vector<std::uint64_t>>
      demanded_keys_;                    // [steps in flight][records] visit that demanded it last
  std::vector<std::uint64_t> last_key_;  // [records] visit that the record was last read for
  std::vector<std::uint64_t> known_;     // [steps in flight] last visit whose demands have all arrived
  Counter *demands_ = nullptr, *hits_ = nullptr, *reads_ = nullptr, *bytes_read_ = nullptr;
  Counter *distinct_bytes_ = nullptr, *failed_reads_ = nullptr, *hint_reads_ = nullptr,
          *useful_hints_ = nullptr;
  Counter *late_hints_ = nullptr, *wasted_hint_bytes_ = nullptr, *resident_ = nullptr,
          *peak_pending_ = nullptr;
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
