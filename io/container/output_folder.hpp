// OutputFolder: the folder that a conversion or a copy writes, unfinished and finished.
//
// Everything is written into a folder in OUT and moved to OUT at the end, model_spec.json last: a folder
// with model_spec.json is a finished container. The state of an unfinished one:
//   identity   what is written and how; another run goes on only if its own is the same text
//   complete   names of the files to move, once all are there; from then on only moves are left
// A file that is to lie elsewhere, a part of the experts, is a link in both folders: while it is written
// to TARGET.partial, at the end to TARGET.
// The partial folder is locked while it is written, so that two cannot write the same one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/container/container_files.hpp"
#include "io/status.hpp"

namespace colibri {

// A file of the folder that lies elsewhere: `name` will be a link to `target`, which is absolute.
struct OutsideFile {
  std::string name;
  std::filesystem::path target;
};

// What writes the folder: the name of the partial folder, and words for messages.
struct OutputWork {
  std::string_view partial;
  std::string_view noun;
  std::string_view of_another;  // what an unfinished one that is not continued belongs to
};
inline constexpr OutputWork kConversionWork{kConversionFolder, "conversion",
                                            "of another checkpoint or with other options"};
inline constexpr OutputWork kCopyWork{kCopyFolder, "copy", "of another model"};

class OutputFolder {
 public:
  using Log = std::function<void(std::string)>;  // may be empty

  // Refuses a folder with other content, and files that lie at the targets of `outside`, unless `force`;
  // then files of an old container are replaced at the end and files that are none of a container are left
  // alone, as are parts of the old one that lie elsewhere: `log` names them.
  static Result<OutputFolder> open(const std::filesystem::path& folder, const std::string& identity,
                                   bool force, const Log& log, std::vector<OutsideFile> outside = {},
                                   const OutputWork& work = kConversionWork);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  ~OutputFolder();

  const std::filesystem::path& partial() const noexcept { return partial_; }
  // A former run of the same work left something.
  bool resumed() const noexcept { return resumed_; }
  // Everything was written by a former run; only publish() is left.
  bool complete() const noexcept { return !files_.empty(); }

  // To be called when all `files` are in partial() and flushed.
  Status mark_complete(std::vector<std::string> files);
  // Moves the files of complete work into the folder and removes the partial one.
  Status publish();
  // Removes what was written; for failures that another run would meet again.
  void discard() noexcept;

 private:
  OutputFolder(std::filesystem::path folder, std::vector<OutsideFile> outside, const OutputWork& work)
      : folder_(std::move(folder)),
        partial_(folder_ / work.partial),
        outside_(std::move(outside)),
        work_(work) {}
  Status lock();
  Status take_up(const std::string& identity, bool force, const Log& log);
  Status check_content(bool force) const;
  Status empty_partial();
  Status link_outside_files();
  Status publish_outside_file(const std::string& name);
  void name_parts_left(const Log& log) const;

  std::filesystem::path folder_;
  std::filesystem::path partial_;
  std::vector<OutsideFile> outside_;
  OutputWork work_;
  std::vector<std::string> files_;  // of the mark "complete"
  bool resumed_ = false;
  bool created_ = false;  // the folder itself
  int lock_ = -1;
};

}  // namespace colibri
