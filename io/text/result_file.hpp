// ResultFile: the results of a job in a file that survives crashes, kills and full disks.
//
// Results are appended as they complete. flush() first syncs the lines, then notes them in
// the journal "<path>.journal" and syncs that: a result is there when its journal entry and
// its bytes agree, and everything else is cut off when the job goes on. An unfinished job
// is recognised by its journal; finish() removes it. Memory does not grow with the job:
// only finish(in_order) holds 24 bytes a result while it sorts.
//
// Whatever moment a process dies at leaves one of three states, each of which resume takes:
// a journal with its results, a journal with older results (nothing vouched for, all is cut
// off), or a complete file without a journal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/status.hpp"
#include "io/text/result_index_set.hpp"
#include "io/text/result_journal.hpp"
#include "io/text/result_output.hpp"
#include "io/text/unique_descriptor.hpp"

namespace colibri {

enum class ResultMode : std::uint8_t {
  fresh,   // start; a file without a journal is overwritten, an unfinished job is refused
  resume,  // go on with what is there, or start when nothing is
  force,   // start over whatever is there
};

class ResultFile final : public ResultOutput {
 public:
  // Whether `path` can be a ResultFile: a regular file or nothing yet. Else use ResultStream.
  static bool fits(const std::string& path);

  // Refuses what can be refused and takes up what resume finds; older results are not touched yet.
  // `input_path` (may be empty) is only compared: results must not overwrite their requests. A second
  // process that opens the same path is refused while this lives.
  static Result<std::unique_ptr<ResultFile>> open(const std::string& path, ResultMode mode,
                                                  const JobIdentity& identity, const std::string& input_path);
  ~ResultFile() override;

  // Once, before the first result: starts over unless an earlier job goes on. Apart from open, so that
  // a job that fails before it has begun leaves the results of an earlier one as they were.
  Status begin();

  // Results that were there already, by index; how many of them are errors.
  const ResultIndexSet& completed() const noexcept { return completed_; }
  std::uint64_t completed_failed() const noexcept { return completed_failed_; }
  // What resume had to cut off, as a sentence for the log; empty when nothing.
  const std::string& note() const noexcept { return note_; }

  Status append(std::uint64_t index, std::string_view line, bool failed) override;
  Status flush() override;

  // All requests are answered: flushes, sorts the lines by index if asked, and removes the journal. A
  // job that stops early calls flush() instead and leaves the journal for resume.
  Status finish(bool in_order);

 private:
  ResultFile(std::string path, JobIdentity identity);
  Status open_data(const std::string& input_path);
  Status take_up();
  Status adopt_finished();
  bool check_entry(const JournalEntry& entry, std::string& line);
  void note_cut(std::uint64_t data_size, std::uint64_t entries);
  Status begin_journal();
  Status publish_journal();
  Status remove_journal();
  Status write_lines();
  Status write_entries();
  Status commit();
  Status sort_lines();

  std::string path_;
  std::string journal_path_;
  JobIdentity identity_;
  bool created_ = false;  // the results file, by open
  bool begun_ = false;
  UniqueDescriptor data_;
  UniqueDescriptor journal_;
  std::uint64_t data_bytes_ = 0;  // written to the file
  std::uint64_t journal_bytes_ = 0;
  std::uint64_t entries_begin_ = 0;  // bytes of the journal's header
  std::string unwritten_;            // lines after data_bytes_
  std::string unnoted_;              // entries after journal_bytes_
  ResultIndexSet completed_;
  std::uint64_t completed_failed_ = 0;
  std::string note_;
  Status failure_;
};

}  // namespace colibri
