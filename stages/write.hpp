// write: hands finished results and streamed pieces to Services::sink.
//
// Results reach the disk in groups: a flush costs two disk syncs, so it happens when nothing
// more is waiting, at most once in `flush_seconds`, and never takes more than a twentieth of
// the time. A sink that fails ends the job; what still arrives then is dropped.
#pragma once

#include <colibri/stage.hpp>
#include <memory>

namespace colibri {

inline constexpr PortInfo kWriteInputs[] = {
    {"outcomes", MessageType::outcome, "finished results and pieces of text", true, true},
};
inline constexpr ParamInfo kWriteParams[] = {
    {.name = "flush_seconds",
     .type = ParamType::number,
     .unit = "seconds",
     .default_value = "0.2",
     .minimum = 0,
     .maximum = 3600,
     .while_running = true,
     .help = "shortest time between two flushes of results to the disk; 0: after each group of results"},
};
inline constexpr MetricInfo kWriteMetrics[] = {
    {"results_total", "results written"},
    {"failed_results_total", "of these, results with an error"},
    {"generated_tokens_total", "token ids in them"},
    {"flushes_total", "times that results were flushed to the disk"},
    {"dropped_results_total", "results dropped because the sink had failed"},
};
inline constexpr StageInfo kWriteInfo = {
    .kind = "write",
    .help = "writes results as they complete",
    .inputs = kWriteInputs,
    .outputs = {},
    .params = kWriteParams,
    .metrics = kWriteMetrics,
    .max_emits = 0,
};

std::unique_ptr<Stage> create_write();

}  // namespace colibri
