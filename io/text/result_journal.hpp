// The journal beside a results file: which job the file belongs to, and which results in it
// are whole. What the journal does not vouch for is not there.
//
// Format (little-endian). Header:
//   0  char[8] "COLIJRNL"     8  u32 version (1)          12  u32 header bytes
//   16 u64 x 2 hash of input (high, low)                  32  u64 lines of input, 0: not known
//   40 u32 bytes of model     44 u32 bytes of options
//   48 model, options (text), zeros up to a multiple of 8, u64 xxh3 of all before
// Then one entry of 40 bytes for each result, in the order of the results file:
//   0  u64 index              8  u64 offset               16  u64 bytes of the line
//   24 u64 xxh3 of the line   32 u32 failed               36  u32 low half of xxh3 of bytes 0 to 35
// Entries are contiguous: each starts where the one before ended. The first entry that is
// torn, damaged or does not match the results file ends the journal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/status.hpp"
#include "io/text/content_hash.hpp"

namespace colibri {

// What must be equal for one job to go on with the results of another.
struct JobIdentity {
  Hash128 input;                  // InputScan::digest
  std::uint64_t input_lines = 0;  // InputScan::lines: indexes are below it; 0: not known
  std::string model;              // digest of the model
  std::string options;            // task and all options that change results, as text for people
};

struct JournalEntry {
  std::uint64_t index = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t line_hash = 0;
  bool failed = false;
};

inline constexpr std::size_t kJournalEntryBytes = 40;
inline constexpr std::size_t kJournalEntriesRead = 4096;                 // at once
inline constexpr std::size_t kMaxIdentityBytes = std::size_t{64} << 10;  // of model and options, each

// Fails when the texts are longer than kMaxIdentityBytes.
Result<std::string> encode_journal_header(const JobIdentity& identity);
void append_journal_entry(std::string& out, const JournalEntry& entry);
// False when the bytes (kJournalEntryBytes of them) are no whole entry.
bool decode_journal_entry(std::string_view bytes, JournalEntry& entry) noexcept;

struct JournalHeader {
  JobIdentity identity;
  std::uint64_t bytes = 0;  // entries start here
};
// Reads the header from the start of a journal file.
Result<JournalHeader> read_journal_header(int descriptor, const std::string& path);

// Ok when the journal is of this job; else says what differs.
Status check_same_job(const JobIdentity& journal, const JobIdentity& job, const std::string& path);

}  // namespace colibri
