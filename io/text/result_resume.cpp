// ResultFile, the part that takes up what an earlier process left.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "io/text/json_document.hpp"
#include "io/text/jsonl_reader.hpp"
#include "io/text/result_file.hpp"

namespace colibri {
namespace {

struct ResultLine {
  std::uint64_t index = 0;
  bool failed = false;
};

// What a result line says of itself, in either shape; nothing when it is no result line.
std::optional<ResultLine> read_result_line(std::string_view text) {
  static constexpr std::array<std::string_view, 4> kKeys = {"id", "index", "custom_id", "error"};
  static constexpr std::string_view kOpenaiId = "batch_req_";
  const auto json = parse_json_members(text, kKeys);
  if (!json || json->object() == nullptr) return std::nullopt;
  const JsonValue* error = json->find("error");
  ResultLine line;
  line.failed = error != nullptr && !error->is_null();
  if (const JsonValue* index = json->find("index"); index != nullptr) {
    return index->to_unsigned(line.index) ? std::optional(line) : std::nullopt;
  }
  const JsonValue* id = json->find("id");
  if (json->find("custom_id") == nullptr || id == nullptr || id->text() == nullptr ||
      !id->text()->starts_with(kOpenaiId)) {
    return std::nullopt;
  }
  const std::string_view digits = std::string_view(*id->text()).substr(kOpenaiId.size());
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), line.index);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return line;
}

}  // namespace

Status ResultFile::take_up() {
  auto journal = open_file(journal_path_, O_RDWR);
  if (!journal && journal.status().code() == ErrorCode::not_found) return adopt_finished();
  if (!journal) return std::move(journal).status();
  begun_ = true;
  journal_ = std::move(journal).value();
  COLIBRI_ASSIGN_OR_RETURN(const JournalHeader header, read_journal_header(journal_.get(), journal_path_));
  COLIBRI_RETURN_IF_ERROR(check_same_job(header.identity, identity_, journal_path_));
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t data_size, file_size(data_.get(), path_));
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t journal_size, file_size(journal_.get(), journal_path_));
  entries_begin_ = journal_bytes_ = header.bytes;
  const std::uint64_t entries = (journal_size - header.bytes) / kJournalEntryBytes;

  std::string block;
  std::string line;
  JournalEntry entry;
  bool good = true;
  for (std::uint64_t first = 0; good && first < entries; first += kJournalEntriesRead) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kJournalEntriesRead, entries - first)) *
                 kJournalEntryBytes);
    COLIBRI_RETURN_IF_ERROR(
        read_at(journal_.get(), block.data(), block.size(), journal_bytes_, journal_path_));
    for (std::size_t at = 0; good && at < block.size(); at += kJournalEntryBytes) {
      good = decode_journal_entry(std::string_view(block).substr(at, kJournalEntryBytes), entry) &&
             entry.offset == data_bytes_ && entry.bytes <= data_size - data_bytes_;
      if (!good) break;
      line.resize(static_cast<std::size_t>(entry.bytes));
      COLIBRI_RETURN_IF_ERROR(read_at(data_.get(), line.data(), line.size(), entry.offset, path_));
      good = check_entry(entry, line);
      if (!good) break;
      data_bytes_ += entry.bytes;
      journal_bytes_ += kJournalEntryBytes;
    }
  }
  note_cut(data_size, entries);
  COLIBRI_RETURN_IF_ERROR(truncate_file(journal_.get(), journal_bytes_, journal_path_));
  return truncate_file(data_.get(), data_bytes_, path_);
}

// Whether the line is what its entry says; then it counts as completed.
bool ResultFile::check_entry(const JournalEntry& entry, std::string& line) {
  if (!line.ends_with('\n') || content_hash64(line) != entry.line_hash) return false;
  if (identity_.input_lines != 0 && entry.index >= identity_.input_lines) return false;
  if (!completed_.insert(entry.index)) return false;
  if (entry.failed) ++completed_failed_;
  return true;
}

void ResultFile::note_cut(std::uint64_t data_size, std::uint64_t entries) {
  if (const std::uint64_t lost = entries - completed_.size(); lost > 0) {
    note_ = "results that do not match their journal are computed again: " + std::to_string(lost) + " in '" +
            path_ + "'";
  } else if (data_size > data_bytes_) {
    note_ = "bytes after the last whole result were cut off: " + std::to_string(data_size - data_bytes_) +
            " in '" + path_ + "'";
  }
}

// No journal: the file of a finished job, or nothing. Its lines say which requests they answer.
Status ResultFile::adopt_finished() {
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t data_size, file_size(data_.get(), path_));
  if (data_size == 0) return {};  // begin() starts
  COLIBRI_RETURN_IF_ERROR(begin_journal());
  COLIBRI_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::open(path_));
  JsonlLine line;
  for (;;) {
    COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, reader.next(line));
    if (event != JsonlReader::Event::line) break;
    const auto result = read_result_line(line.text);
    // The last line may be torn, if one before it shows that these are results.
    if (!line.terminated && completed_.size() > 0) break;
    const bool whole = line.terminated && line.offset == data_bytes_ && line.bytes == line.text.size() + 1;
    if (!result || !whole || (identity_.input_lines != 0 && result->index >= identity_.input_lines) ||
        !completed_.insert(result->index)) {
      ::unlink((journal_path_ + ".new").c_str());
      return {ErrorCode::invalid_input, "the file does not hold results of this job: '" + path_ + "' line " +
                                            std::to_string(line.index) +
                                            " (counted from 0); name another file, or leave out --resume to "
                                            "overwrite it"};
    }
    JournalEntry entry{result->index, line.offset, line.bytes, 0, result->failed};
    entry.line_hash = content_hash64(std::string(line.text) + "\n");
    append_journal_entry(unnoted_, entry);
    if (entry.failed) ++completed_failed_;
    data_bytes_ += line.bytes;
    if (unnoted_.size() >= kJournalEntriesRead * kJournalEntryBytes) COLIBRI_RETURN_IF_ERROR(write_entries());
  }
  note_cut(data_size, completed_.size());
  COLIBRI_RETURN_IF_ERROR(publish_journal());
  begun_ = true;
  return truncate_file(data_.get(), data_bytes_, path_);
}

}  // namespace colibri
