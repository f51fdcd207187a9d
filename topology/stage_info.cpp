// Names of message types and the parameters that every stage, or every partitioned one, has.
// They are tables like those of the kinds, so that they are checked, described and documented alike.
#include "topology/stage_info.hpp"

namespace colibri {

std::string_view message_type_name(MessageType type) noexcept {
  switch (type) {
    case MessageType::request: return "request";
    case MessageType::wave: return "wave";
    case MessageType::step_done: return "step_done";
    case MessageType::outcome: return "outcome";
    case MessageType::demand: return "demand";
    case MessageType::visit: return "visit";
    case MessageType::residual_copy: return "residual_copy";
    case MessageType::hint: return "hint";
    case MessageType::expert: return "expert";
    case MessageType::slot: return "slot";
    case MessageType::expert_done: return "expert_done";
    case MessageType::host: return "host";
  }
  return "unknown";
}

std::span<const ParamInfo> common_stage_params() noexcept {
  static constexpr ParamInfo kParams[] = {
      {.name = "workers",
       .type = ParamType::integer,
       .unit = "threads",
       .default_value = "auto",
       .minimum = 1,
       .maximum = 4096,
       .allow_auto = true,
       .help = "threads that the stage's parallel work uses at most; auto: all of its placement"},
      {.name = "numa_node",
       .type = ParamType::integer,
       .default_value = "auto",
       .minimum = 0,
       .maximum = 1023,
       .allow_auto = true,
       .help = "NUMA node to which the stage is pinned; excludes cpus"},
      {.name = "cpus",
       .type = ParamType::text,
       .unit = kCpuListUnit,
       .default_value = "auto",
       .allow_auto = true,
       .help = "CPUs to which the stage is pinned, as 0-3,8 or [0, 1, 2, 3, 8]; excludes numa_node"},
  };
  return kParams;
}

std::span<const ParamInfo> partition_params(const StageInfo& info) noexcept {
  static constexpr ParamInfo kParams[] = {
      {.name = "experts",
       .type = ParamType::text,
       .unit = kExpertListUnit,
       .default_value = "all",
       .help =
           "experts of the stage: all, or ids, ranges and remainders as in 7,0-31,32-,0/2; several stages "
           "of a kind share out the experts"},
  };
  return info.partitioned ? std::span<const ParamInfo>(kParams) : std::span<const ParamInfo>();
}

}  // namespace colibri
