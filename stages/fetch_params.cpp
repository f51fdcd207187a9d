#include "stages/fetch_params.hpp"

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
  return options;
}

}  // namespace colibri
