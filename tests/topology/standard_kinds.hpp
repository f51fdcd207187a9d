// Kinds with the ports of the standard pipeline and a few parameters of every type, for tests of
// topology/ alone: it must not need the stages themselves.
#pragma once

#include <array>

#include "topology/pipeline_spec.hpp"

namespace colibri::testing {

using enum MessageType;

inline constexpr PortInfo kReadOut[] = {{"requests", request, "Requests."}};
inline constexpr PortInfo kAdmitIn[] = {
    {"requests", request, "Requests."},
    {.name = "done", .type = step_done, .help = "Steps.", .feedback = true}};
inline constexpr PortInfo kAdmitOut[] = {{"waves", wave, "Waves."}, {"outcomes", outcome, "Refusals."}};
inline constexpr PortInfo kWaves[] = {{"waves", wave, "Waves."}};
inline constexpr PortInfo kAttendIn[] = {
    {.name = "looping", .type = wave, .help = "Waves.", .feedback = true}, {"fresh", wave, "Waves."}};
inline constexpr PortInfo kAttendOut[] = {{"routed", wave, "Waves."}, {"finished", wave, "Waves."}};
inline constexpr PortInfo kRouteIn[] = {
    {"waves", wave, "Waves."},
    {.name = "spent", .type = hint, .help = "Hints.", .required = false, .feedback = true}};
inline constexpr PortInfo kRouteOut[] = {
    {"waves", wave, "Waves."},
    {"demand", demand, "Demands."},
    {"visits", visit, "Visits."},
    {.name = "residual", .type = residual_copy, .help = "Residuals.", .required = false}};
inline constexpr PortInfo kPredictIn[] = {{"residual", residual_copy, "Residuals."}};
inline constexpr PortInfo kPredictOut[] = {{"hints", hint, "Hints."}};
inline constexpr PortInfo kFetchIn[] = {
    {.name = "released", .type = slot, .help = "Slots.", .feedback = true},
    {"demand", demand, "Demands."},
    {.name = "hints", .type = hint, .help = "Hints.", .required = false}};
inline constexpr PortInfo kFetchOut[] = {
    {"experts", expert, "Experts."}, {.name = "spent", .type = hint, .help = "Hints.", .required = false}};
inline constexpr PortInfo kTransferIn[] = {
    {.name = "released", .type = slot, .help = "Slots.", .feedback = true}, {"experts", expert, "Experts."}};
inline constexpr PortInfo kTransferOut[] = {{"experts", expert, "Experts."}, {"released", slot, "Slots."}};
inline constexpr PortInfo kComputeIn[] = {{"visits", visit, "Visits."}, {"experts", expert, "Experts."}};
inline constexpr PortInfo kComputeOut[] = {{"done", expert_done, "Results."}, {"released", slot, "Slots."}};
inline constexpr PortInfo kCombineIn[] = {{"done", expert_done, "Results."}, {"waves", wave, "Waves."}};
inline constexpr PortInfo kCombineOut[] = {{"next_layer", wave, "Waves."}};
inline constexpr PortInfo kSampleOut[] = {{"done", step_done, "Steps."}, {"outcomes", outcome, "Results."}};
inline constexpr PortInfo kWriteIn[] = {
    {.name = "outcomes", .type = outcome, .help = "Results.", .many = true}};

inline constexpr ParamInfo kFetchParams[] = {
    {.name = "lanes",
     .type = ParamType::integer,
     .unit = "lanes",
     .default_value = "16",
     .minimum = 1,
     .maximum = 64,
     .help = "Reads under way at a time."},
    {.name = "read_size",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "1MiB",
     .minimum = 4096,
     .maximum = 67108864,
     .allow_auto = true,
     .help = "Bytes of one read."},
    {.name = "backend",
     .type = ParamType::choice,
     .default_value = "auto",
     .choices = "io_uring|pread",
     .allow_auto = true,
     .help = "How records are read."},
    {.name = "direct",
     .type = ParamType::boolean,
     .default_value = "true",
     .help = "Reads past the page cache."},
};
inline constexpr ParamInfo kPredictParams[] = {
    {.name = "threshold",
     .type = ParamType::number,
     .default_value = "0.25",
     .minimum = 0,
     .maximum = 1,
     .while_running = true,
     .help = "Least probability of a hint."},
    {.name = "mode",
     .type = ParamType::choice,
     .default_value = "next_router",
     .choices = "none|next_router",
     .help = "What guesses."},
    {.name = "label", .type = ParamType::text, .default_value = "", .help = "Free text."},
};
inline constexpr MetricInfo kFetchMetrics[] = {{"read_bytes_total", "Bytes read."}};

inline constexpr StageInfo kKinds[] = {
    {.kind = "read", .help = "Requests in.", .outputs = kReadOut, .source = true},
    {.kind = "admit", .help = "Builds steps.", .inputs = kAdmitIn, .outputs = kAdmitOut},
    {.kind = "embed", .help = "Tokens to states.", .inputs = kWaves, .outputs = kWaves},
    {.kind = "attend", .help = "Attention.", .inputs = kAttendIn, .outputs = kAttendOut},
    {.kind = "route", .help = "Picks experts.", .inputs = kRouteIn, .outputs = kRouteOut},
    {.kind = "predict",
     .help = "Guesses.",
     .inputs = kPredictIn,
     .outputs = kPredictOut,
     .params = kPredictParams},
    {.kind = "fetch",
     .help = "Reads experts.",
     .inputs = kFetchIn,
     .outputs = kFetchOut,
     .params = kFetchParams,
     .metrics = kFetchMetrics},
    {.kind = "transfer", .help = "Moves slots.", .inputs = kTransferIn, .outputs = kTransferOut},
    {.kind = "compute", .help = "Expert FFN.", .inputs = kComputeIn, .outputs = kComputeOut},
    {.kind = "combine", .help = "Adds up.", .inputs = kCombineIn, .outputs = kCombineOut},
    {.kind = "sample", .help = "Draws tokens.", .inputs = kWaves, .outputs = kSampleOut},
    {.kind = "write", .help = "Results out.", .inputs = kWriteIn},
};

inline constexpr auto kKindPointers = [] {
  std::array<const StageInfo*, std::size(kKinds)> pointers{};
  for (std::size_t i = 0; i < std::size(kKinds); ++i) pointers[i] = &kKinds[i];
  return pointers;
}();

inline StageInfos standard_kinds() { return kKindPointers; }

}  // namespace colibri::testing
