#include "io/text/result_journal.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/text/unique_descriptor.hpp"

namespace colibri {
namespace {

static_assert(std::endian::native == std::endian::little, "the journal is written in the order of memory");

constexpr std::string_view kMagic = "COLIJRNL";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 48;
constexpr std::size_t kMaxHeaderBytes = kFixedBytes + 2 * kMaxIdentityBytes + 16;

template <class T>
void append_number(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

template <class T>
T number_at(std::string_view bytes, std::size_t offset) noexcept {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

Status damaged(const std::string& path, std::string_view what) {
  return {ErrorCode::corrupt,
          "the journal is damaged: '" + path + "', " + std::string(what) + "; use --force to start over"};
}

}  // namespace

Result<std::string> encode_journal_header(const JobIdentity& identity) {
  if (identity.model.size() > kMaxIdentityBytes || identity.options.size() > kMaxIdentityBytes) {
    return Status(ErrorCode::invalid_input, "the options of a job are too long to be kept: at most " +
                                                std::to_string(kMaxIdentityBytes) + " bytes; shorten them");
  }
  const std::size_t texts = identity.model.size() + identity.options.size();
  const std::size_t padding = (8 - texts % 8) % 8;
  std::string out(kMagic);
  append_number(out, kVersion);
  append_number(out, static_cast<std::uint32_t>(kFixedBytes + texts + padding + 8));
  append_number(out, identity.input.high);
  append_number(out, identity.input.low);
  append_number(out, identity.input_lines);
  append_number(out, static_cast<std::uint32_t>(identity.model.size()));
  append_number(out, static_cast<std::uint32_t>(identity.options.size()));
  out += identity.model;
  out += identity.options;
  out.append(padding, '\0');
  append_number(out, content_hash64(out));
  return out;
}

void append_journal_entry(std::string& out, const JournalEntry& entry) {
  const std::size_t start = out.size();
  append_number(out, entry.index);
  append_number(out, entry.offset);
  append_number(out, entry.bytes);
  append_number(out, entry.line_hash);
  append_number(out, std::uint32_t{entry.failed ? 1U : 0U});
  append_number(out, static_cast<std::uint32_t>(content_hash64(std::string_view(out).substr(start))));
}

bool decode_journal_entry(std::string_view bytes, JournalEntry& entry) noexcept {
  if (bytes.size() != kJournalEntryBytes) return false;
  if (number_at<std::uint32_t>(bytes, 36) !=
      static_cast<std::uint32_t>(content_hash64(bytes.substr(0, 36)))) {
    return false;
  }
  entry.index = number_at<std::uint64_t>(bytes, 0);
  entry.offset = number_at<std::uint64_t>(bytes, 8);
  entry.bytes = number_at<std::uint64_t>(bytes, 16);
  entry.line_hash = number_at<std::uint64_t>(bytes, 24);
  const auto failed = number_at<std::uint32_t>(bytes, 32);
  entry.failed = failed == 1;
  return failed <= 1;
}

Result<JournalHeader> read_journal_header(int descriptor, const std::string& path) {
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t size, file_size(descriptor, path));
  std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(size, kMaxHeaderBytes)), '\0');
  COLIBRI_RETURN_IF_ERROR(read_at(descriptor, bytes.data(), bytes.size(), 0, path));
  if (bytes.size() < kFixedBytes || !std::string_view(bytes).starts_with(kMagic)) {
    return damaged(path, "it does not start like a journal");
  }
  if (const auto version = number_at<std::uint32_t>(bytes, 8); version != kVersion) {
    return Status(ErrorCode::unsupported, "the journal has another version: '" + path + "' has " +
                                              std::to_string(version) + ", this program " +
                                              std::to_string(kVersion) + "; use --force to start over");
  }
  const std::size_t header = number_at<std::uint32_t>(bytes, 12);
  const std::size_t model = number_at<std::uint32_t>(bytes, 40);
  const std::size_t options = number_at<std::uint32_t>(bytes, 44);
  if (header > bytes.size() || model > kMaxIdentityBytes || options > kMaxIdentityBytes ||
      header < kFixedBytes + model + options + 8) {
    return damaged(path, "its header has impossible sizes");
  }
  const std::string_view content = std::string_view(bytes).substr(0, header - 8);
  if (number_at<std::uint64_t>(bytes, header - 8) != content_hash64(content)) {
    return damaged(path, "the checksum of its header is wrong");
  }
  JournalHeader result;
  result.bytes = header;
  result.identity.input = {number_at<std::uint64_t>(bytes, 16), number_at<std::uint64_t>(bytes, 24)};
  result.identity.input_lines = number_at<std::uint64_t>(bytes, 32);
  result.identity.model = content.substr(kFixedBytes, model);
  result.identity.options = content.substr(kFixedBytes + model, options);
  return result;
}

Status check_same_job(const JobIdentity& journal, const JobIdentity& job, const std::string& path) {
  std::string difference;
  const auto add = [&](const std::string& text) {
    difference += (difference.empty() ? "" : ", and ") + text;
  };
  if (journal.input != job.input || journal.input_lines != job.input_lines) {
    add("the input has changed (" + std::to_string(journal.input_lines) + " lines then, " +
        std::to_string(job.input_lines) + " now)");
  }
  if (journal.model != job.model) add("the model was '" + journal.model + "' and is '" + job.model + "'");
  if (journal.options != job.options)
    add("the options were '" + journal.options + "' and are '" + job.options + "'");
  if (difference.empty()) return {};
  return {ErrorCode::invalid_input, "the results are of another job: in '" + path + "' " + difference +
                                        "; give the same, or use --force to start over"};
}

}  // namespace colibri
