// transfer: brings a record to where it is computed.
//
// On one memory node the slot itself is handed over: nothing moves, and messages go past the stage unless
// it has to share them out among several. In copy mode the
// record is copied into staging memory next to the consumer and the slot goes back to
// `fetch` at once, so that reads can go on; when no staging is free the slot is handed over
// instead, so that staging memory can never hold up a visit. Staging memory is numbered like
// slots, with a mark and the number of its stage, so that it comes back to where it belongs
// however many transfers a record passes. Of a visit only the records that a message is about are looked at.
#include "stages/transfer.hpp"

#include <cassert>
#include <charconv>
#include <colibri/services.hpp>
#include <cstring>
#include <span>
#include <vector>

#include "stages/lease_ring.hpp"
#include "stages/record_chains.hpp"
#include "stages/tiling.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"released", MessageType::slot, "slots or staging memory that compute is done with", true, true, true},
    {"experts", MessageType::expert, "records that lie in a slot", true, true},
};
constexpr PortInfo kOutputs[] = {
    {.name = "experts",
     .type = MessageType::expert,
     .help = "records next to where they are computed",
     .by_expert = true},
    {.name = "released", .type = MessageType::slot, .help = "slots whose lease ended", .by_expert = true},
};
constexpr std::uint32_t kStagingBits = 12;
constexpr std::uint32_t kStagingLimit = 1U << kStagingBits;
constexpr ParamInfo kParams[] = {
    {.name = "mode",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "handover",
     .choices = "handover|copy",
     .help =
         "handover: compute reads the slot itself, and messages go past this stage unless it shares them out "
         "among several; copy: into staging memory, and the slot is free at once"},
    {.name = "staging",
     .type = ParamType::integer,
     .unit = "records",
     .default_value = "4",
     .minimum = 1,
     .maximum = kStagingLimit,
     .help = "records of staging memory in copy mode"},
};
constexpr MetricInfo kMetrics[] = {
    {"handed_over_total", "records whose slot was handed on by this stage"},
    {"copied_bytes_total", "bytes copied into staging memory"},
};
enum Input : std::uint8_t { kReleasedIn, kExpertsIn };
enum Output : std::uint32_t { kExperts, kReleased };
constexpr std::uint32_t kStagingFlag = 0x80000000U;  // in a slot number: staging memory, of the stage in the
                                                     // bits from kStagingBits on
constexpr std::size_t kCopyTileBytes = 256 * 1024;

class Transfer final : public Stage {
 public:
  std::span<const std::uint32_t> passes_to(const StageContext& context) const override {
    static constexpr std::uint32_t kPasses[] = {kReleased, kExperts};
    if (context.text("mode") == "copy") return {};
    return kPasses;
  }

  Status start(StageContext& context) override {
    context_ = &context;
    staging_mark_ = kStagingFlag | context.instance() << kStagingBits;
    record_bytes_ = context.services().container->layout().record_bytes;
    copies_ = context.text("mode") == "copy";
    if (copies_) {
      for (std::uint32_t i = static_cast<std::uint32_t>(context.integer("staging")); i-- > 0;)
        free_.push_back(i);
    }
    handed_over_ = context.counter("handed_over_total");
    copied_bytes_ = context.counter("copied_bytes_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    if (message.port == kReleasedIn) {
      released(message, out);
      return Wait::none;
    }
    if (message.error != nullptr || (!copies_ && out.owners(kExperts) == 1)) {
      handed_over_->add(message.error != nullptr ? 0 : message.count);
      out.emit_to(kExperts, out.owner(kExperts, message.first), message);
      return Wait::none;
    }
    begin_leases(message.count, out);
    Visit& visit = *message.visit();
    std::uint32_t expert = message.first;
    for (std::uint32_t i = 0; i < message.count; ++i) {
      LentRecord& record = visit.records[expert];
      const std::uint32_t next = record.next;
      if (free_.empty()) {
        handed_over_->add(1);
      } else {
        const std::uint32_t owner = out.owner(kReleased, expert);
        if (owner < leases_.size()) leases_[owner].add({.slot = record.slot, .expert = expert});
        copy(record);
      }
      records_.add(visit, expert, out);
      expert = next;
    }
    records_.send_all(out);
    send_leases(out);
    return Wait::none;
  }

 private:
  // Into staging memory.
  void copy(LentRecord& record) {
    const std::uint32_t staging = free_.back();
    free_.pop_back();
    std::byte* target = context_->memory().data() + staging * record_bytes_;
    const std::size_t tiles = (record_bytes_ + kCopyTileBytes - 1) / kCopyTileBytes;
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(record_bytes_, tiles, tile);
      std::memcpy(target + begin, record.data + begin, end - begin);
    });
    copied_bytes_->add(record_bytes_);
    record = {.data = target, .slot = staging | staging_mark_};
  }

  // Own staging memory is free again; the rest goes on to the owner of its expert.
  void released(const Message& message, Emitter& out) {
    if (!copies_ && out.owners(kReleased) == 1) return out.emit(kReleased, message);
    begin_leases(message.count, out);
    for (const Lease& lease : message.leases()) {
      if (is_own_staging(lease.slot)) {
        free_.push_back(lease.slot & (kStagingLimit - 1));
      } else if (const std::uint32_t owner = out.owner(kReleased, lease.expert); owner < leases_.size()) {
        leases_[owner].add(lease);
      }
    }
    send_leases(out);
  }

  // At most so many for each owner.
  void begin_leases(std::size_t leases, const Emitter& out) {
    while (leases_.size() < out.owners(kReleased)) leases_.emplace_back(context_->services().plan);
    for (LeaseRing& ring : leases_) ring.begin(leases);
  }
  void send_leases(Emitter& out) {
    for (std::uint32_t owner = 0; owner < leases_.size(); ++owner) {
      if (const Message message = leases_[owner].message(); message.count > 0)
        out.emit_to(kReleased, owner, message);
    }
  }
  bool is_own_staging(std::uint32_t slot) const noexcept {
    return (slot & ~(kStagingLimit - 1)) == staging_mark_;
  }

  StageContext* context_ = nullptr;
  std::uint64_t record_bytes_ = 0;
  std::uint32_t staging_mark_ = 0;
  bool copies_ = false;
  std::vector<std::uint32_t> free_;  // staging records
  RecordChains records_{kExperts};
  std::vector<LeaseRing> leases_;  // by owner of `released`
  Counter *handed_over_ = nullptr, *copied_bytes_ = nullptr;
};

}  // namespace

const StageInfo kTransferInfo = {
    .kind = "transfer",
    .help = "brings a record to the memory of the stage that computes with it",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
    .partitioned = true,
};

std::unique_ptr<Stage> create_transfer() { return std::make_unique<Transfer>(); }

std::uint64_t transfer_memory_bytes(const PlanInputs& inputs) {
  if (inputs.param("mode") != "copy") return 0;
  const ModelSpec& spec = *inputs.spec;
  const auto layout = expert_layout(spec.weight_dtype, spec.hidden_size, spec.intermediate_size);
  const std::string_view text = inputs.param("staging");
  std::uint64_t staging = 0;
  std::from_chars(text.data(), text.data() + text.size(), staging);
  return layout ? staging * layout->record_bytes : 0;
}

}  // namespace colibri
