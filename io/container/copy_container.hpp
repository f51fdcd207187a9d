// copy_container: a container to another drive, verified on the way, resumable.
//
// For models that lie on a network mount: experts are read at the speed of the drive that holds them.
// Every chunk is compared with its checksum while it is copied, every file with its SHA-256 in the
// manifest. A copy that was interrupted is taken up: what lies there is read and compared, only what is
// missing or damaged is copied. The copy is no model until it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "io/status.hpp"

namespace colibri {

struct CopyOptions {
  bool force = false;                    // replace a model that lies there
  std::function<void(std::string)> log;  // one line each; may be empty
  // Bytes done and in all; may be empty.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
  std::function<bool()> cancelled;  // asked often; may be empty
};

struct CopyReport {
  std::uint64_t bytes = 0;       // of the model
  std::uint64_t kept_bytes = 0;  // that a former run had copied
  bool was_there = false;        // the folder held this model already; nothing was done
};

// A striped model becomes one folder: its parts are files of it, no links. Errors: invalid_input (the folder
// holds something else), io (no room; a drive), corrupt (the model is damaged), cancelled (what was copied
// stays, the next call goes on).
Result<CopyReport> copy_container(const std::filesystem::path& model, const std::filesystem::path& folder,
                                  const CopyOptions& options);

}  // namespace colibri
