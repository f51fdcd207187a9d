#include "stages/fetch_params.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <string_view>

namespace colibri {

ReadBackendOptions fetch_read_options(StageContext& context) {
  ReadBackendOptions options;
  const std::string_view backend = context.text("backend");
  options.kind = backend == "pread"      ? ReadKind::pread
                 : backend == "io_uring" ? ReadKind::io_uring
                                         : ReadKind::automatic;
  const std::string_view direct = context.text("direct");
  options.direct = direct == "on" ? DirectIo::on : direct == "off" ? DirectIo::off : DirectIo::automatic;
  options.lanes = context.is_auto("lanes") ? 0 : static_cast<std::uint32_t>(context.integer("lanes"));
  options.inflight_bytes = context.integer("inflight_bytes");
  options.read_bytes = context.integer("read_bytes");
  options.bandwidth_limit = context.integer("bandwidth_limit");
  const Services& services = context.services();
  const SlotShare& share = services.slots.shares[context.instance()];
  options.max_outstanding = share.slots;
  options.registered_region = {services.slots.base + services.slots.stride * share.first,
                               services.slots.stride * share.slots};
  options.faults = services.read_faults;
  options.drives = services.read_drives;
  options.virtual_device = services.virtual_device;
  return options;
}

SlotTable::Shape slot_table_shape(StageContext& context, std::span<const std::uint8_t> owned) {
  const Services& services = context.services();
  const SlotShare& share = services.slots.shares[context.instance()];
  return {.layers = services.plan.spec->num_moe_layers(),
          .experts = services.plan.spec->num_experts,
          .owned = static_cast<std::uint32_t>(std::count(owned.begin(), owned.end(), 1)),
          .slots = share.slots,
          .transit = share.transit,
          .steps = static_cast<std::uint32_t>(services.steps.size()),
          .policy = *find_resident_policy(context.text("policy"))};
}

}  // namespace colibri
