// What fio measures of the same reads, when it is installed: an independent figure beside ours.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "io/status.hpp"

namespace colibri::cli {

// "fio-3.33", or nothing where fio is not found on PATH.
std::optional<std::string> fio_version();

struct FioProbe {
  std::span<const std::filesystem::path> files;
  std::uint64_t read_bytes = 0;
  std::uint32_t depth = 0;
  std::chrono::milliseconds duration{1000};
  bool io_uring = true;  // else its pool of threads
  bool direct = true;
  std::uint64_t seed = 1;
  std::function<bool()> cancelled;  // may be empty
};

// Bytes a second of random reads. Errors: io (fio fails; with what it says), cancelled.
Result<double> fio_read_rate(const FioProbe& probe);

// The rate in what `fio --output-format=json` prints; apart for tests.
Result<double> rate_of_fio_json(const std::string& text);

}  // namespace colibri::cli
