#include "io/text/result_sort.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "io/text/result_journal.hpp"
#include "io/text/unique_descriptor.hpp"

namespace colibri {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

struct Place {
  std::uint64_t index;
  std::uint64_t offset;
  std::uint64_t bytes;
};

Result<std::vector<Place>> read_places(const JournalRange& journal) {
  std::vector<Place> places;
  places.reserve((journal.end - journal.begin) / kJournalEntryBytes);
  std::string block;
  JournalEntry entry;
  for (std::uint64_t from = journal.begin; from < journal.end; from += block.size()) {
    block.resize(static_cast<std::size_t>(
        std::min<std::uint64_t>(kJournalEntriesRead * kJournalEntryBytes, journal.end - from)));
    COLIBRI_RETURN_IF_ERROR(read_at(journal.descriptor, block.data(), block.size(), from, journal.path));
    for (std::size_t at = 0; at < block.size(); at += kJournalEntryBytes) {
      if (!decode_journal_entry(std::string_view(block).substr(at, kJournalEntryBytes), entry)) {
        return Status(ErrorCode::corrupt, "the journal changed while the job ran: '" + journal.path +
                                              "' at byte " + std::to_string(from + at) +
                                              "; go on with --resume");
      }
      places.push_back({entry.index, entry.offset, entry.bytes});
    }
  }
  return places;
}

}  // namespace

Result<bool> write_sorted_results(const JournalRange& journal, int results, const std::string& results_path,
                                  const std::string& sorted_path) {
  COLIBRI_ASSIGN_OR_RETURN(std::vector<Place> places, read_places(journal));
  const auto by_index = [](const Place& a, const Place& b) { return a.index < b.index; };
  if (std::is_sorted(places.begin(), places.end(), by_index)) return false;
  std::sort(places.begin(), places.end(), by_index);

  struct stat info {};
  if (::fstat(results, &info) != 0) return system_error("examine", results_path, errno);
  COLIBRI_ASSIGN_OR_RETURN(const UniqueDescriptor sorted,
                           open_file(sorted_path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  if (::fchmod(sorted.get(), info.st_mode & 07777U) != 0) return system_error("create", sorted_path, errno);
  std::string block;
  std::uint64_t written = 0;
  const auto write_block = [&]() -> Status {
    COLIBRI_RETURN_IF_ERROR(write_at(sorted.get(), block, written, sorted_path));
    written += block.size();
    block.clear();
    return {};
  };
  for (const Place& place : places) {
    const std::size_t at = block.size();
    block.resize(at + static_cast<std::size_t>(place.bytes));
    COLIBRI_RETURN_IF_ERROR(read_at(results, block.data() + at, static_cast<std::size_t>(place.bytes),
                                    place.offset, results_path));
    if (block.size() >= kCopyBytes) COLIBRI_RETURN_IF_ERROR(write_block());
  }
  COLIBRI_RETURN_IF_ERROR(write_block());
  COLIBRI_RETURN_IF_ERROR(sync_file(sorted.get(), sorted_path));
  return true;
}

}  // namespace colibri
