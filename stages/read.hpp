// read: brings requests into the pipeline.
//
// A source: it pulls one request at a time from Services::source, wraps it into a Sequence
// and hands that to `admit`. A request that came with an error travels like any other, so
// that results keep one way out. It stops pulling when the job is stopping.
#pragma once

#include <colibri/stage.hpp>
#include <memory>

namespace colibri {

inline constexpr PortInfo kReadOutputs[] = {
    {"requests", MessageType::request, "parsed requests, with token ids"},
};
inline constexpr MetricInfo kReadMetrics[] = {
    {"requests_total", "requests handed on"},
    {"bad_requests_total", "requests that came with an error"},
    {"prompt_tokens_total", "token ids of their prompts"},
};
inline constexpr StageInfo kReadInfo = {
    .kind = "read",
    .help = "reads requests and turns their prompts into token ids",
    .inputs = {},
    .outputs = kReadOutputs,
    .params = {},
    .metrics = kReadMetrics,
    .max_emits = 1,
    .source = true,
};

std::unique_ptr<Stage> create_read();

}  // namespace colibri
