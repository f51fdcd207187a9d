// Kinds for the case files: small graphs, one stage (tune) with a parameter of every type, kinds that share
// out experts, and kinds whose ports have states.
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
inline constexpr ParamInfo kWriteParams[] = {
    {.name = "file",
     .type = ParamType::text,
     .unit = kOutputFileUnit,
     .required = true,
     .help = "file to write"},
    {.name = "layers",
     .type = ParamType::text,
     .unit = kLayerListUnit,
     .default_value = "all",
     .help = "layers that are written"},
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
    {.kind = "writer",
     .help = "hands waves on and writes them",
     .inputs = kWavesPort,
     .outputs = kWavesPort,
     .params = kWriteParams},
};

inline constexpr auto kCaseKindPointers = [] {
  std::array<const StageInfo*, std::size(kCaseKinds)> pointers{};
  for (std::size_t i = 0; i < std::size(kCaseKinds); ++i) pointers[i] = &kCaseKinds[i];
  return pointers;
}();

inline StageInfos case_kinds() { return kCaseKindPointers; }

// The kinds of all case files, and `more`.
template <std::size_t N>
constexpr auto case_kinds_and(const StageInfo (&more)[N]) {
  std::array<const StageInfo*, std::size(kCaseKinds) + N> pointers{};
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    pointers[i] = i < std::size(kCaseKinds) ? &kCaseKinds[i] : &more[i - std::size(kCaseKinds)];
  }
  return pointers;
}

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

inline constexpr auto kSharingKindPointers = case_kinds_and(kSharingKinds);
inline StageInfos sharing_kinds() { return kSharingKindPointers; }

// States: raw waves become ripe; watch takes any and changes nothing, but can show ripe ones alone.
inline constexpr PortInfo kRawPort[] = {
    {.name = "waves", .type = MessageType::wave, .help = "waves", .state = "raw"}};
inline constexpr PortInfo kRipePort[] = {
    {.name = "waves", .type = MessageType::wave, .help = "waves", .state = "ripe"}};
inline constexpr PortInfo kSamePort[] = {
    {.name = "waves", .type = MessageType::wave, .help = "waves", .state = kSameState}};
inline constexpr PortInfo kSameManyPort[] = {
    {.name = "waves", .type = MessageType::wave, .help = "waves", .many = true, .state = kSameState}};
inline constexpr ParamInfo kWatchParams[] = {{.name = "what",
                                              .type = ParamType::choice,
                                              .default_value = "size",
                                              .choices = "size|colour",
                                              .help = "what is shown"}};
inline constexpr StateNeed kWatchNeeds[] = {{"what", "colour", "ripe|rotten"}};

inline constexpr StageInfo kStateKinds[] = {
    {.kind = "pick", .help = "makes raw waves", .outputs = kRawPort, .source = true},
    {.kind = "ripen", .help = "makes them ripe", .inputs = kRawPort, .outputs = kRipePort},
    {.kind = "watch",
     .help = "hands waves on as they are",
     .inputs = kSamePort,
     .outputs = kSamePort,
     .params = kWatchParams,
     .state_needs = kWatchNeeds},
    {.kind = "gather", .help = "joins waves as they are", .inputs = kSameManyPort, .outputs = kSamePort},
    {.kind = "eat", .help = "takes ripe waves", .inputs = kRipePort},
};

inline constexpr auto kStateKindPointers = case_kinds_and(kStateKinds);
inline StageInfos state_kinds() { return kStateKindPointers; }

}  // namespace colibri::testing
