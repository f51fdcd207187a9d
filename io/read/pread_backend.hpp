// The pread pool: one thread per lane, each in a blocking pread.
//
// Works everywhere, also where sandboxes refuse io_uring. Internal to io/read; opened by
// open_read_backend.
#pragma once

#include <cstdint>
#include <memory>

#include "io/read/raw_lanes.hpp"
#include "io/read/read_files.hpp"
#include "io/status.hpp"

namespace colibri {

// `files` and `sink` must outlive the lanes. Error: out_of_memory when threads are refused.
Result<std::unique_ptr<RawLanes>> open_pread_lanes(const ReadFiles& files, std::uint32_t lanes,
                                                   RawSink& sink);

}  // namespace colibri
