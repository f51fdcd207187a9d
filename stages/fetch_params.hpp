// The parameters of `fetch`, and what those about reads ask of the backend.
#pragma once

#include <colibri/stage.hpp>
#include <cstdint>
#include <memory>
#include <span>

#include "io/read/read_backend.hpp"
#include "stages/read_arrivals.hpp"
#include "stages/slot_table.hpp"

namespace colibri {

inline constexpr ParamInfo kFetchParams[] = {
    {.name = "backend",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "auto",
     .choices = "auto|io_uring|pread",
     .help = "how reads are issued; auto: io_uring, else a pool of threads"},
    {.name = "direct",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "auto",
     .choices = "auto|on|off",
     .help = "O_DIRECT; auto: on where the file system takes it"},
    {.name = "lanes",
     .type = ParamType::integer,
     .unit = "reads",
     .default_value = "auto",
     .minimum = 1,
     .maximum = 256,
     .allow_auto = true,
     .help = "reads in flight at a time; auto: 16 with io_uring, 8 with pread"},
    {.name = "inflight_bytes",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "64MiB",
     .minimum = 4096,
     .help =
         "bytes being read at a time; the slots that hold as much, but at least 4 and at most 16, are kept "
         "free of residents where there are enough; more of them where max_rows is so large that more is "
         "read between two layers"},
    {.name = "read_bytes",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "1MiB",
     .minimum = 4096,
     .help = "records are read in pieces of at least this size and less than twice of it, in whole chunks"},
    {.name = "policy",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "probability",
     .choices = "probability|pinned",
     .help = "which records stay in slots; probability: of each layer those likeliest to be demanded next; "
             "pinned: those of its first visits, or of earlier jobs (see state_dir), for the whole job"},
    {.name = "prewarm",
     .type = ParamType::boolean,
     .unit = "",
     .default_value = "true",
     .help = "while nothing else is to be read, reads what earlier jobs used most; see state_dir"},
    {.name = "mirrors",
     .type = ParamType::text,
     .unit = "list of folders",
     .default_value = "",
     .help = "copies of the model on other drives, made with colibri stage, separated by commas: each read "
             "goes to the drive with the "
             "fewest bytes in flight"},
    {.name = "hints",
     .type = ParamType::boolean,
     .unit = "",
     .default_value = "true",
     .while_running = true,
     .help = "reads ahead what the predictor names; false: demands only"},
    {.name = "bandwidth_limit",
     .type = ParamType::bytes,
     .unit = "bytes",
     .default_value = "0",
     .while_running = true,
     .help = "bytes a second that reads take at most, to leave the drive to others too; 0: no limit"},
    {.name = "deadline_ms",
     .type = ParamType::integer,
     .unit = "ms",
     .default_value = "30000",
     .minimum = 10,
     .maximum = 86'400'000,
     .while_running = true,
     .help =
         "a read this old fails when no other read has ended meanwhile; also the wait for reads at the end"},
};

// What the stage reads with.
struct ExpertReads {
  std::unique_ptr<ReadBackend> backend;
  std::uint32_t copies = 1;  // of the model, with its mirrors
  std::uint64_t bandwidth_limit = 0;
};

// Reads into the stage's slots, issued as its parameters say; what they and the backend have to tell goes to
// `arrivals`.
Result<ExpertReads> open_expert_reads(StageContext& context, const std::shared_ptr<ReadArrivals>& arrivals);

// owned: [experts] 1 for those of the stage.
SlotTable::Shape slot_table_shape(StageContext& context, std::span<const std::uint8_t> owned);

}  // namespace colibri
