// Sorts a results file by request index, with no more memory than 24 bytes a result.
#pragma once

#include <cstdint>
#include <string>

#include "io/status.hpp"

namespace colibri {

// Where the entries of a journal lie.
struct JournalRange {
  int descriptor;
  const std::string& path;
  std::uint64_t begin;  // bytes
  std::uint64_t end;
};

// Writes the lines that the journal names in the order of their index to `sorted_path`, synced and with
// the permissions of the results file. False when they are in order already: then nothing is written.
Result<bool> write_sorted_results(const JournalRange& journal, int results, const std::string& results_path,
                                  const std::string& sorted_path);

}  // namespace colibri
