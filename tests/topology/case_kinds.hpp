// Kinds for the case files: small graphs, one stage (tune) with a parameter of every type, and kinds that
// share out experts.
#pragma once

#include <array>

#include "topology/pipeline_spec.hpp"

namespace colibri::testing {

inline constexpr PortInfo kWavesPort[] = {{"waves", MessageType::wave, "waves"}};
inline constexpr PortInfo kVisitsPort[] = {{"visits", MessageType::visit, "visits"}};
inline constexpr PortInfo kMergeInputs[] = {
    {.name = "waves", .type = MessageType::wave, .help = "waves", .many = true},
    {.name = "back", .type = MessageType::wave, .help = "waves", .required = false, .feedback = true}};
inline constexpr PortInfo kMergeOutputs[] = {
    {"waves", MessageType::wave, "waves"},
    {.name = "again", .type = MessageType::wave, .help = "waves", .required = false}};

inline constexpr ParamInfo kTuneParams[] = {
    {.name = "lanes",
     .type = ParamType::integer,
     .unit = "lanes",
     .default_value = "16",
     .minimum = 1,
     .maximum = 64,
     .help = "reads under way at a time"},
    {.name = "read_size",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "1MiB",
     .minimum = 4096,
     .maximum = 67108864,
     .allow_auto = true,
     .help = "bytes of one read"},
    {.name = "backend",
     .type = ParamType::choice,
     .default_value = "auto",
     .choices = "io_uring|pread",
     .allow_auto = true,
     .help = "how records are read"},
    {.name = "direct",
     .type = ParamType::boolean,
     .default_value = "true",
     .help = "reads past the page cache"},
    {.name = "threshold",
     .type = ParamType::number,
     .default_value = "0.25",
     .minimum = 0,
     .maximum = 1,
     .while_running = true,
     .help = "least probability"},
    {.name = "label", .type = ParamType::text, .help = "free text"},
};
inline constexpr ParamInfo kPassParams[] = {
    {.name = "size", .type = ParamType::bytes, .default_value = "4KiB", .help = "bytes handed on"}};
inline constexpr MetricInfo kTuneMetrics[] = {{"read_bytes_total", "bytes read"}};

inline constexpr StageInfo kCaseKinds[] = {
    {.kind = "source", .help = "makes waves", .outputs = kWavesPort, .source = true},
    {.kind = "pass",
     .help = "hands waves on",
     .inputs = kWavesPort,
     .outputs = kWavesPort,
     .params = kPassParams},
    {.kind = "merge", .help = "joins waves", .inputs = kMergeInputs, .outputs = kMergeOutputs},
    {.kind = "score", .help = "makes visits", .inputs = kWavesPort, .outputs = kVisitsPort},
    {.kind = "sink", .help = "takes waves", .inputs = kWavesPort},
    {.kind = "tune",
     .help = "has parameters",
     .inputs = kWavesPort,
     .outputs = kWavesPort,
     .params = kTuneParams,
     .metrics = kTuneMetrics},
};

inline constexpr auto kCaseKindPointers = [] {
  std::array<const StageInfo*, std::size(kCaseKinds)> pointers{};
  for (std::size_t i = 0; i < std::size(kCaseKinds); ++i) pointers[i] = &kCaseKinds[i];
  return pointers;
}();

inline StageInfos case_kinds() { return kCaseKindPointers; }

// Kinds that share out experts: dealer -> worker (several) -> keeper.
inline constexpr PortInfo kJobsOut[] = {
    {.name = "jobs", .type = MessageType::demand, .help = "jobs", .by_expert = true}};
inline constexpr PortInfo kJobsIn[] = {
    {.name = "jobs", .type = MessageType::demand, .help = "jobs", .many = true}};
inline constexpr PortInfo kDoneOut[] = {
    {.name = "done", .type = MessageType::expert, .help = "done", .by_expert = true}};
inline constexpr PortInfo kDoneIn[] = {
    {.name = "done", .type = MessageType::expert, .help = "done", .many = true}};

inline constexpr StageInfo kSharingKinds[] = {
    {.kind = "dealer", .help = "deals jobs", .outputs = kJobsOut, .source = true},
    {.kind = "worker", .help = "does jobs", .inputs = kJobsIn, .outputs = kDoneOut, .partitioned = true},
    {.kind = "keeper", .help = "keeps results", .inputs = kDoneIn, .partitioned = true},
};

// The kinds above and these.
inline constexpr auto kSharingKindPointers = [] {
  std::array<const StageInfo*, std::size(kCaseKinds) + std::size(kSharingKinds)> pointers{};
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    pointers[i] = i < std::size(kCaseKinds) ? &kCaseKinds[i] : &kSharingKinds[i - std::size(kCaseKinds)];
  }
  return pointers;
}();

inline StageInfos sharing_kinds() { return kSharingKindPointers; }

}  // namespace colibri::testing
