// io_uring lanes on Boost.Asio: one io_context and one thread for all files of a backend.
//
// Asio is visible only in the .cpp. Internal to io/read; opened by open_read_backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "io/read/raw_lanes.hpp"
#include "io/read/read_files.hpp"
#include "io/status.hpp"

namespace colibri {

struct AsioLanesOptions {
  std::uint32_t lanes = 16;
  std::span<std::byte> registered_region;  // may be empty; must outlive the lanes
  std::function<void(std::string)> log;
  int setup_error = 0;         // errno to pretend for the setup of the ring (tests)
  int registration_error = 0;  // errno to pretend for the registration of the region (tests)
};

// Unsupported, with a sentence that says why and what to raise, when the ring is refused.
// A refused registration only costs a log line. `files` and `sink` must outlive the lanes.
Result<std::unique_ptr<RawLanes>> open_asio_lanes(const ReadFiles& files, const AsioLanesOptions& options,
                                                  RawSink& sink);

}  // namespace colibri
