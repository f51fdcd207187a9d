// fetch: demands and hints in, records in slots out.
//
// A demand is never refused: what finds no slot waits in a table of fixed size (at most
// two visits a step and every expert in each). Demands are served in the order of arrival,
// which makes the minimum of one slot enough: all demands of a visit arrive before any of
// the same step's next one, and the earliest visit can always be computed. A record that lies
// in a slot is shared ahead of demands that wait only where that leaves them a slot.
// Hints get only slots that no demand wants, and leave one free. A record is never read
// while it is being read or lies in a slot: one read per expert, layer and step.
// When no read ends for `deadline_ms`, those older than that fail their demands; their slots
// stay out of use until the drive has answered.
// Several fetches share out the experts: each has its own part of the slots (numbers are of the
// whole region), its own table and reads, and none knows of the others.
//
// A Visit is looked at in one place, `demanded`, for the experts that the demand names: the visit lasts at
// least until the last of these was handed out and computed. All else travels by value in the demand, since a
// fetch whose experts are done, or that has none of the visit, may hear of its end when the object is in
// use again. Later only the place of a record that the visit still waits for is written into it.
#include "stages/fetch.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <colibri/services.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/read/read_backend.hpp"
#include "io/read/virtual_device.hpp"
#include "stages/demand_floor.hpp"
#include "stages/fetch_counters.hpp"
#include "stages/fetch_params.hpp"
#include "stages/fixed_ring.hpp"
#include "stages/prewarm_list.hpp"
#include "stages/read_ahead.hpp"
#include "stages/read_arrivals.hpp"
#include "stages/read_deadlines.hpp"
#include "stages/record_chains.hpp"
#include "stages/record_places.hpp"
#include "stages/slot_table.hpp"
#include "stages/visit_progress.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"released", MessageType::slot, "slots whose lease ended", true, true, true},
    {"demand", MessageType::demand, "experts that a wave needs"},
    {"hints", MessageType::hint, "experts that the next visits may need", false},
};
constexpr PortInfo kOutputs[] = {
    {.name = "experts",
     .type = MessageType::expert,
     .help = "records that lie in a slot, leased to their visit",
     .by_expert = true},
    {"spent", MessageType::hint, "hint batches that were read, for reuse", false},
};
enum Output : std::uint32_t { kExperts, kSpent };
enum Input : std::uint8_t { kReleased, kDemand, kHints };

// Looks for reads past their deadline, in one deadline.
constexpr int kTicksPerDeadline = 4;
// Reads in flight up to which earlier jobs' records are read.
constexpr std::uint32_t kPrewarmReads = 8;
// In place of a visit's key, of which none is 0.
constexpr std::uint64_t kPrewarm = 0;

class Fetch final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    share_ = services_->slots.shares[context.instance()];
    experts_ = spec.num_experts;
    owned_.resize(experts_);
    for (std::uint32_t expert = 0; expert < experts_; ++expert) owned_[expert] = context.owns(expert) ? 1 : 0;
    places_ = RecordPlaces(*services_->container);
    last_key_.assign(places_.records(), 0);
    visits_ = VisitProgress(services_->steps.size(), spec.num_moe_layers(), last_key_.size());
    waiting_.assign(share_.slots, {});
    for (auto& waiters : waiting_) waiters.reserve(services_->plan.in_flight);
    // A step's demands of one visit may still wait while those of the next come in.
    pending_ = FixedRing<Pending>(services_->steps.size() * 2 * experts_);
    ahead_ = ReadAhead(last_key_.size(), share_.slots);
    prewarms_.assign(share_.slots, 0);
    floor_ = DemandFloor(last_key_.size());
    deadlines_ = ReadDeadlines(share_.slots, patience());
    table_ = std::make_unique<SlotTable>(slot_table_shape(context, owned_));
    const bool prewarm = context.boolean("prewarm");
    if (services_->usage != nullptr && !services_->usage->empty()) {
      table_->restore(*services_->usage, owned_, prewarm || context.text("policy") == "pinned");
      if (prewarm) prewarm_ = PrewarmList(table_->choice().ranking());
    }
    counters_.declare(context);
    counters_.slots->set(share_.slots);

    arrivals_ = std::make_shared<ReadArrivals>(context.completion_port(), share_.slots);
    COLIBRI_ASSIGN_OR_RETURN(ExpertReads reads, open_expert_reads(context, arrivals_));
    backend_ = std::move(reads.backend);
    bandwidth_limit_ = reads.bandwidth_limit;
    copies_ = reads.copies;
    try {
      watch_ = std::make_unique<ReadWatch>(arrivals_, deadlines_.limit() / kTicksPerDeadline);
    } catch (const std::system_error& error) {
      return {ErrorCode::out_of_memory, std::string("a thread to watch reads was refused: ") + error.what() +
                                            "; raise the limit (ulimit -u)"};
    }
    issue_prewarm();
    counters_.prewarm_under_way->set(prewarms_under_way_);
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    switch (message.port) {
      case kCompletionPort:
        if (message.first == ReadArrivals::kTick) {
          ask_bandwidth();  // reads in flight may end sooner now
          check_deadlines(out);
        } else {
          completed(message.first, out);
        }
        break;
      case kReleased:
        for (const Lease& lease : message.leases()) released(lease.slot);
        break;
      case kDemand: demanded(message, out); break;
      case kHints: hinted(*message.hints(), out); break;
      default: assert(false);
    }
    records_.send_all(out);  // what is there need not wait for reads to be issued
    issue_reads(out);
    records_.send_all(out);
    counters_.prewarm_under_way->set(prewarms_under_way_);
    return Wait::none;
  }

  void stop() noexcept override {
    if (backend_ == nullptr) return;
    counters_.prewarm_under_way->set(0);  // whoever waits for them waits no more
    ask_deadline();
    watch_.reset();
    if (!backend_->close(deadlines_.limit())) {
      // The kernel may still write into the slots: neither they nor the backend may be freed, ever.
      arrivals_->close();
      services_->leak_slots();
      services_->fail_job(
          Status(ErrorCode::timeout, "reads have not ended " + std::to_string(deadlines_.limit().count()) +
                                         " ms after the last step; the drive hangs: check it with "
                                         "`dmesg`, then start again"));
      static_cast<void>(backend_.release());
    }
    backend_.reset();
    if (table_ == nullptr) return;
    counters_.resident->set(table_->residents());
    for (std::uint32_t index = 0; index < table_->size(); ++index) {
      const SlotTable::Slot& slot = table_->slot(index);
      if (slot.hinted && slot.state == SlotTable::State::landed)
        drop_hint(index);  // read for a step that never came
    }
    counters_.floor_bytes->set(floor_.reads(share_.slots - share_.transit) * record_bytes());
    if (services_->usage != nullptr) table_->choice().usage().save(owned_, *services_->usage);
  }

 private:
  // An expert that a visit demands.
  struct Pending {
    Visit* visit = nullptr;
    std::uint32_t expert = 0;
    std::uint32_t record = 0;
    std::uint64_t key = 0;
    std::uint64_t order = 0;  // of arrival
    bool small_step = false;  // the visit's step fills less than half of the rows that it may have
  };

  std::byte* memory_of(std::uint32_t index) const {
    return services_->slots.base + services_->slots.stride * (share_.first + index);
  }

  // A slot comes back from where its record went. Anything else means edges that bypass the stage that copied
  // it.
  void released(std::uint32_t slot) {
    const std::uint32_t index = slot - share_.first;  // wraps around when it is another one's
    if (index < table_->size() && table_->slot(index).leases > 0) {
      table_->release(index);
      return;
    }
    services_->fail_job(
        Status(ErrorCode::invalid_input, "a slot came back to " + std::string(context_->name()) +
                                             " that it has not lent: " + std::to_string(slot) +
                                             "; let slots return by the stages that records passed"));
  }

  void demanded(const Message& message, Emitter& out) {
    const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(message.layer);
    const std::uint64_t key = visits_.key_of(message.step_serial, ordinal);
    if (visits_.begin(message.step_slot, key)) {
      table_->begin_visit(message.step_slot, ordinal, key);
      ahead_.gate().visit_begins(now());
    }
    const bool small =
        message.count > 0 && std::uint64_t{2} * message.visit()->step->rows < services_->plan.max_rows;
    const std::uint32_t* experts = message.count > 0 ? message.visit()->experts + message.first : nullptr;
    for (std::uint32_t i = 0; i < message.count; ++i) {
      const std::uint32_t expert = experts[i];
      const std::uint32_t record = table_->record_of(ordinal, expert);
      table_->demanded(message.step_slot, record);
      counters_.demands->add(1);
      floor_.demanded(record);
      visits_.demanded(message.step_slot, record, key);
      // After the last one the visit may be over any time.
      serve({message.visit(), expert, record, key, next_order_++, small}, out);
    }
    counters_.peak_pending->set(std::max<std::uint64_t>(counters_.peak_pending->get(), pending_.size()));
    if (message.last) {
      visits_.complete(message.step_slot, key);
      table_->end_visit(message.step_slot);
      drop_stale_hints();
    }
  }

  // A record that lies in a slot is handed out; one being read gets another waiter; else it waits for a slot.
  void serve(const Pending& demand, Emitter& out) {
    const std::uint32_t index = table_->find(demand.record);
    const bool ahead = !pending_.empty();
    if (index == SlotTable::kNone || (ahead && !table_->may_lease_ahead(index))) {
      pending_.push_back(demand);
      return;
    }
    const SlotTable::Slot& slot = table_->slot(index);
    if (slot.state == SlotTable::State::landed) {
      counters_.hits->add(1);
      count_small_step(demand, slot.hinted && !slot.used);
      if (slot.hinted && !slot.used) counters_.useful_hints->add(1);
    } else if (slot.hinted && !slot.used) {
      count_small_step(demand, true);
      counters_.late_hints->add(1);
    }
    share(demand, index, ahead, out);
  }

  void share(const Pending& demand, std::uint32_t index, bool ahead, Emitter& out) {
    if (deadlines_.overdue(index)) {
      refuse(demand, overdue_error(index), out);
      return;
    }
    const SlotTable::Slot& slot = table_->slot(index);
    if (slot.state == SlotTable::State::reading && slot.leases == 0) {
      backend_->promote(index);
      ahead_.gate().demanded(index);
    }
    if (slot.hinted) ahead_.leased(index, slot.visit == demand.key);
    table_->lease(index, demand.key, ahead);
    if (slot.state == SlotTable::State::landed) {
      hand_out(demand, index, out);
    } else {
      waiting_[index].push_back(demand);
    }
  }

  // Says that a demand cannot be met; no slot goes with it, and compute passes the error on to the rows.
  static void refuse(const Pending& demand, const Status& error, Emitter& out) {
    out.emit_to(kExperts, out.owner(kExperts, demand.expert),
                {.type = MessageType::expert,
                 .first = demand.expert,
                 .count = 1,
                 .object = demand.visit,
                 .error = new Status(error)});
  }

  void hand_out(const Pending& demand, std::uint32_t index, Emitter& out) {
    demand.visit->records[demand.expert] = {
        .data = memory_of(index), .slot = share_.first + index, .kept = table_->slot(index).resident};
    records_.add(*demand.visit, demand.expert, out);
  }

  void completed(std::uint32_t index, Emitter& out) {
    Status status = arrivals_->take_status(index);
    const SlotTable::Slot slot = table_->slot(index);
    std::vector<Pending>& waiters = waiting_[index];
    const bool was_overdue = deadlines_.completed(index);
    if (std::exchange(prewarms_[index], 0) != 0) --prewarms_under_way_;
    ahead_.gate().ended(index, status.is_ok() && !was_overdue, now());
    watch_->reads_in_flight(deadlines_.in_flight() > 0);
    if (was_overdue) {
      table_->failed(index);
    } else if (status.is_ok()) {
      count_read(slot);
      table_->landed(index);
      for (const Pending& waiter : waiters) hand_out(waiter, index, out);
      if (slot.leases == 0 && !slot.hinted) drop_hint(index);  // its visit passed while it was being read
    } else if (status.code() == ErrorCode::cancelled) {
      // A stale hint. Demands that came between cancel and now start over, in their turn.
      for (const Pending& waiter : waiters)
        pending_.insert(waiter, [](const Pending& a, const Pending& b) { return a.order < b.order; });
      table_->failed(index);
    } else {
      status = std::move(status).at(places_.name(slot.record));
      counters_.failed_reads->add(1);
      for (const Pending& waiter : waiters) refuse(waiter, status, out);
      table_->failed(index);
    }
    waiters.clear();
  }

  // Of the drives' clock.
  HintGate::Time now() const {
    if (services_->virtual_device != nullptr) return services_->virtual_device->now();
    return std::chrono::steady_clock::now().time_since_epoch();
  }

  // How long a drive may say nothing. Our own limit on its bandwidth may be what it waits for: a record and
  // the one before it then take their time.
  std::chrono::milliseconds patience() const {
    std::uint64_t limit_ms = context_->integer("deadline_ms");
    if (const std::uint64_t rate = context_->integer("bandwidth_limit"); rate != 0) {
      limit_ms += record_bytes() * 2000 / rate;
    }
    return std::chrono::milliseconds(limit_ms);
  }

  // It may be another than the last time.
  void ask_deadline() {
    deadlines_.set_limit(patience());
    if (watch_ != nullptr) watch_->set_period(deadlines_.limit() / kTicksPerDeadline);
  }

  // As may this. Drives that others use too are not to be filled with our reads.
  void ask_bandwidth() {
    const std::uint64_t limit = context_->integer("bandwidth_limit");
    if (limit == bandwidth_limit_) return;
    bandwidth_limit_ = limit;
    backend_->limit_bandwidth(limit);
    deadlines_.restart();
  }

  // Fails the demands of reads past their deadline.
  void check_deadlines(Emitter& out) {
    watch_->tick_taken();
    ask_deadline();
    for (std::uint32_t index = 0; index < table_->size() && !deadlines_.nothing_else_in_flight(); ++index) {
      if (table_->slot(index).state != SlotTable::State::reading || !deadlines_.expire(index)) continue;
      counters_.failed_reads->add(1);
      table_->hint_passed(index);
      const Status error = overdue_error(index);
      for (const Pending& waiter : waiting_[index]) refuse(waiter, error, out);
      waiting_[index].clear();
    }
  }

  // With no slot free, none leased or waiting for a visit's end, and no read in flight but those past their
  // deadline, demands have nothing to wait for.
  void refuse_hopeless(Emitter& out) {
    if (!deadlines_.any_overdue() || !deadlines_.nothing_else_in_flight()) return;
    std::uint32_t overdue = 0;
    for (std::uint32_t index = 0; index < table_->size(); ++index) {
      if (deadlines_.overdue(index)) {
        overdue = index;
      } else if (table_->slot(index).leases > 0 || table_->undecided(index)) {
        return;
      }
    }
    const Status error = overdue_error(overdue);
    while (!pending_.empty()) refuse(pending_.pop_front(), error, out);
  }

  Status overdue_error(std::uint32_t index) const {
    return places_.overdue(table_->slot(index).record, deadlines_.limit(), copies_ > 1);
  }

  // Hints for visits whose demands have all arrived are worth no more: those not read are forgotten, those in
  // the queue of the backend cancelled, those in slots stay or go by their probability.
  void drop_stale_hints() {
    ahead_.forget_passed(visits_);
    for (std::uint32_t index = 0; index < table_->size() && table_->hinted_slots() > 0; ++index) {
      const SlotTable::Slot& slot = table_->slot(index);
      if (!slot.hinted || !visits_.over(slot.visit)) continue;
      ahead_.passed(index);
      if (slot.state == SlotTable::State::landed) {
        drop_hint(index);
      } else {
        table_->hint_passed(index);  // still being read: see completed
        if (slot.leases == 0) backend_->cancel(index);
      }
    }
  }

  void drop_hint(std::uint32_t index) {
    if (const SlotTable::Slot& slot = table_->slot(index); !slot.used && slot.visit != kPrewarm) {
      counters_.wasted_hint_bytes->add(record_bytes());
      ahead_.wasted(index);
    }
    table_->hint_passed(index);
  }

  void hinted(HintBatch& batch, Emitter& out) {
    if (context_->boolean("hints")) {
      for (const HintTarget& target : std::span(batch.targets, batch.target_count)) {
        const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(target.layer);
        const std::uint64_t key = visits_.key_of(batch.step_serial + target.steps_ahead, ordinal);
        ahead_.take(target, ordinal, key, owned_, *table_, visits_);
      }
    } else {
      ahead_.forget_all();  // those taken before, too
    }
    if (out.room(kSpent) > 0) out.emit(kSpent, {.type = MessageType::hint, .object = &batch});
  }

  void issue_reads(Emitter& out) {
    while (!pending_.empty()) {
      const Pending demand = pending_.front();
      // Another step in flight may have had the same record read meanwhile; then it is simply shared.
      if (const std::uint32_t present = table_->find(demand.record); present != SlotTable::kNone) {
        pending_.pop_front();
        share(demand, present, /*ahead=*/false, out);
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
      count_small_step(demand, true);
      read(index, true);
    }
    // One slot stays free for a demand.
    while (table_->free_slots() >= 2) {
      const std::optional<Hint> hint = ahead_.next(*table_, visits_, now());
      if (!hint) break;
      const std::uint32_t index = table_->begin_read(hint->record, hint->key, true);
      ahead_.begin(index, *hint);
      counters_.hint_reads->add(1);
      read(index, false);
    }
    issue_prewarm();
  }

  // A few reads at a time, so that what comes to be demanded finds lanes.
  void issue_prewarm() {
    // One slot stays free for a demand.
    while (deadlines_.in_flight() < kPrewarmReads && table_->free_slots() >= 2) {
      const std::uint32_t record = prewarm_.next(*table_);
      if (record == SlotTable::kNone) break;
      const std::uint32_t index = table_->begin_read(record, kPrewarm, false);
      prewarms_[index] = 1;
      ++prewarms_under_way_;
      read(index, false);
    }
  }

  void read(std::uint32_t index, bool demand) {
    ReadRequest request = places_.request(table_->slot(index).record, memory_of(index));
    request.tag = index;
    request.demand = demand;
    ask_bandwidth();
    deadlines_.submitted(index);
    ahead_.gate().submitted(index, demand, now());
    watch_->reads_in_flight(true);
    if (Status submitted = backend_->submit(request); !submitted) {
      arrivals_->arrived({.tag = index, .status = std::move(submitted)});
    }
  }

  // A record belongs to the visit that it was read for: a second read for the same one is not distinct.
  void count_read(const SlotTable::Slot& slot) {
    if (slot.visit == kPrewarm) {
      counters_.prewarmed(record_bytes());
    } else {
      ahead_.read();
      counters_.read(record_bytes(), std::exchange(last_key_[slot.record], slot.visit) != slot.visit);
    }
  }

  // `first`: the read is for this demand, rather than for another one before.
  void count_small_step(const Pending& demand, bool first) {
    if (demand.small_step && first) counters_.small_step_bytes->add(record_bytes());
  }

  std::uint64_t record_bytes() const { return places_.record_bytes(); }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  SlotShare share_;
  std::uint32_t experts_ = 0;
  std::vector<std::uint8_t> owned_;  // [experts] whether they are this fetch's
  RecordPlaces places_;
  std::unique_ptr<SlotTable> table_;
  std::unique_ptr<ReadBackend> backend_;
  std::shared_ptr<ReadArrivals> arrivals_;
  std::unique_ptr<ReadWatch> watch_;
  FixedRing<Pending> pending_;  // demands without a slot, oldest first
  std::uint64_t next_order_ = 0;
  RecordChains records_{kExperts};
  ReadAhead ahead_;
  std::vector<std::vector<Pending>> waiting_;  // [slots] demands that wait for the read into the slot
  ReadDeadlines deadlines_;
  std::uint32_t copies_ = 1;           // of the files that records are read from
  std::uint64_t bandwidth_limit_ = 0;  // that the backend keeps to
  VisitProgress visits_;
  DemandFloor floor_;
  PrewarmList prewarm_;
  std::vector<char> prewarms_;  // [slots] a read of the list goes into it
  std::uint32_t prewarms_under_way_ = 0;
  std::vector<std::uint64_t> last_key_;  // [records] visit that the record was last read for
  FetchCounters counters_;
};

}  // namespace

const StageInfo kFetchInfo = {
    .kind = "fetch",
    .help = "reads expert records into slots, each at most once a visit; keeps the likeliest resident",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kFetchParams,
    .metrics = kFetchMetrics,
    .max_emits = 0,
    .partitioned = true,
    .memory = {.slots = true},
};

std::unique_ptr<Stage> create_fetch() { return std::make_unique<Fetch>(); }

}  // namespace colibri
