// OutputFolder: the folder that a conversion writes, unfinished and finished.
//
// Everything is written into OUT/convert.partial and moved to OUT at the end, model_spec.json last:
// a folder with model_spec.json is a finished container. The state of an unfinished one:
//   identity   what is converted and how; another run goes on only if its own is the same text
//   complete   names of the files to move, once all are there; from then on only moves are left
// The partial folder is locked while a conversion runs, so that two cannot write the same one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/status.hpp"

namespace colibri {

class OutputFolder {
 public:
  using Log = std::function<void(std::string)>;  // may be empty

  // Refuses a folder with other content unless `force`; then files of an old container are replaced at
  // the end and files that are none of a container are left alone.
  static Result<OutputFolder> open(const std::filesystem::path& folder, const std::string& identity,
                                   bool force, const Log& log);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  ~OutputFolder();

  const std::filesystem::path& partial() const noexcept { return partial_; }
  // A former run of the same conversion left something.
  bool resumed() const noexcept { return resumed_; }
  // Everything was written by a former run; only publish() is left.
  bool complete() const noexcept { return !files_.empty(); }

  // To be called when all `files` are in partial() and flushed.
  Status mark_complete(std::vector<std::string> files);
  // Moves the files of a complete conversion into the folder and removes the partial one.
  Status publish();
  // Removes what this conversion has written; for failures that another run would meet again.
  void discard() noexcept;

 private:
  OutputFolder(std::filesystem::path folder, std::filesystem::path partial)
      : folder_(std::move(folder)), partial_(std::move(partial)) {}
  Status lock();
  Status take_up(const std::string& identity, bool force, const Log& log);

  std::filesystem::path folder_;
  std::filesystem::path partial_;
  std::vector<std::string> files_;  // of the mark "complete"
  bool resumed_ = false;
  bool created_ = false;  // the folder itself
  int lock_ = -1;
};

}  // namespace colibri
