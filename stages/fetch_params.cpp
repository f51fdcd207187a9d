#include "stages/fetch_params.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stages/mirror_files.hpp"

namespace colibri {

namespace {

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

}  // namespace

Result<ExpertReads> open_expert_reads(StageContext& context, const std::shared_ptr<ReadArrivals>& arrivals) {
  const Services& services = context.services();
  const Container& container = *services.container;
  ReadBackendOptions options = fetch_read_options(context);
  options.log = [arrivals, log = services.log](std::string line) {
    if (log) arrivals->say(log, std::move(line));
  };
  // Reads of a drive that hangs outlive the stage, and look at the container's checksums when they come.
  auto deliver = [arrivals, kept = container.weak_from_this().lock()](ReadCompletion&& done) {
    arrivals->arrived(std::move(done));
  };
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> files,
                           files_with_mirrors(container, context.text("mirrors")));
  options.copies = static_cast<std::uint32_t>(files.size() / container.expert_files().size());
  ExpertReads reads{.copies = options.copies, .bandwidth_limit = options.bandwidth_limit};
  COLIBRI_ASSIGN_OR_RETURN(reads.backend, open_read_backend(files, options, std::move(deliver)));
  return reads;
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
