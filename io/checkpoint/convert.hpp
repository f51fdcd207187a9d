// convert: from a Hugging Face checkpoint folder to a colibri container.
//
// The checkpoint is checked as a whole before anything is written: an unsupported config
// or quantisation, and every missing, extra or misshapen tensor, is named at once.
// Conversion then streams tensor by tensor (peak memory below 1 GiB for any model) and
// can be interrupted and resumed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/container/model_spec.hpp"
#include "io/status.hpp"

namespace colibri {

struct ConvertOptions {
  std::string weights = "auto";            // auto, f32, bf16, int8, int4
  std::uint32_t chunk_bytes = 128 * 1024;  // multiple of 4096, at least 4096
  bool force = false;                      // replace what lies in the output folder
  std::uint32_t threads = 1;               // that pack weights; the output does not depend on it
  // Directories, one a drive, that share the expert records: those of expert e go to number e % size. The
  // output folder has links to the files there. Empty: one file in the output folder.
  std::vector<std::filesystem::path> stripe;
  std::function<void(std::string)> log;                        // one line each: ignored tensors, resumed work
  std::function<void(std::uint64_t, std::uint64_t)> progress;  // bytes written, bytes in all
  std::function<bool()> cancelled;  // polled often; true stops with ErrorCode::cancelled
};

struct ConvertReport {
  ModelSpec spec;
  std::uint64_t dense_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t ignored_tensors = 0;
  bool resumed = false;
};

Result<ConvertReport> convert_checkpoint(const std::filesystem::path& checkpoint,
                                         const std::filesystem::path& output, const ConvertOptions& options);

}  // namespace colibri
