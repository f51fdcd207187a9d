// transfer: brings a record to where it is computed.
//
// On one memory node the slot itself is handed over and nothing moves. In copy mode the
// record is copied into staging memory next to the consumer and the slot goes back to
// `fetch` at once, so that reads can go on; when no staging is free the slot is handed over
// instead, so that staging memory can never hold up a visit. Staging memory is numbered like
// slots, with a mark and the number of its stage, so that it comes back to where it belongs
// however many transfers a record passes. Of a visit only the address is handed on.
#include "stages/transfer.hpp"

#include <cassert>
#include <charconv>
#include <colibri/services.hpp>
#include <cstring>
#include <vector>

#include "stages/lease_ring.hpp"
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
         "handover: compute reads the slot itself; copy: into staging memory, and the slot is free at once"},
    {.name = "staging",
     .type = ParamType::integer,
     .unit = "records",
     .default_value = "4",
     .minimum = 1,
     .maximum = kStagingLimit,
     .help = "records of staging memory in copy mode"},
};
constexpr MetricInfo kMetrics[] = {
    {"handed_over_total", "records whose slot was handed on"},
    {"copied_bytes_total", "bytes copied into staging memory"},
};
enum Output : std::uint32_t { kExperts, kReleased };
constexpr std::uint32_t kStagingFlag = 0x80000000U;  // in a slot number: staging memory, of the stage in the
                                                     // bits from kStagingBits on
constexpr std::size_t kCopyTileBytes = 256 * 1024;

class Transfer final : public Stage {
 public:
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
    if (message.type == MessageType::slot) {
      released(message, out);
      return Wait::none;
    }
    if (message.data == nullptr || free_.empty()) {
      handed_over_->add(message.data == nullptr ? 0 : 1);
      out.emit_to(kExperts, out.owner(kExperts, message.first), message);
      return Wait::none;
    }
    const std::uint32_t staging = free_.back();
    free_.pop_back();
    std::byte* target = context_->memory().data() + staging * record_bytes_;
    const std::size_t tiles = (record_bytes_ + kCopyTileBytes - 1) / kCopyTileBytes;
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(record_bytes_, tiles, tile);
      std::memcpy(target + begin, message.data + begin, end - begin);
    });
    copied_bytes_->add(record_bytes_);
    Message moved = message;
    moved.data = target;
    moved.count = staging | staging_mark_;
    const std::uint32_t owner = out.owner(kReleased, message.first);
    out.emit_to(kExperts, out.owner(kExperts, message.first), moved);
    if (owner >= out.owners(kReleased)) return Wait::none;
    LeaseRing& leases = leases_to(owner);
    leases.begin(1);
    leases.add({.slot = message.count, .expert = message.first});
    out.emit_to(kReleased, owner, leases.message());
    return Wait::none;
  }

 private:
  // Own staging memory is free again; the rest goes on to the owner of its expert.
  void released(const Message& message, Emitter& out) {
    if (!copies_ && out.owners(kReleased) == 1) return out.emit(kReleased, message);
    for (const Lease& lease : message.leases()) {
      if (is_own_staging(lease.slot)) free_.push_back(lease.slot & (kStagingLimit - 1));
    }
    for (std::uint32_t owner = 0; owner < out.owners(kReleased); ++owner) {
      LeaseRing& leases = leases_to(owner);
      leases.begin(message.count);
      for (const Lease& lease : message.leases()) {
        if (!is_own_staging(lease.slot) && out.owner(kReleased, lease.expert) == owner) leases.add(lease);
      }
      if (const Message passed = leases.message(); passed.count > 0) out.emit_to(kReleased, owner, passed);
    }
  }
  LeaseRing& leases_to(std::uint32_t owner) {
    while (leases_.size() <= owner) leases_.emplace_back(context_->services().plan);
    return leases_[owner];
  }
  bool is_own_staging(std::uint32_t slot) const noexcept {
    return (slot & ~(kStagingLimit - 1)) == staging_mark_;
  }

  StageContext* context_ = nullptr;
  std::uint64_t record_bytes_ = 0;
  std::uint32_t staging_mark_ = 0;
  bool copies_ = false;
  std::vector<std::uint32_t> free_;  // staging records
  std::vector<LeaseRing> leases_;    // by owner of `released`
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
