#include "io/text/request_scan.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "io/text/json_output.hpp"
#include "io/text/jsonl_reader.hpp"
#include "io/text/request_parser.hpp"

namespace colibri {
namespace {

constexpr std::size_t kMaxReported = 10;

struct IdEntry {
  Hash128 id;
  std::uint64_t index;
  friend auto operator<=>(const IdEntry&, const IdEntry&) = default;
};

// Lines that share an id, in order of the first of them.
std::vector<std::vector<std::uint64_t>> find_repeats(std::vector<IdEntry>& entries) {
  std::sort(entries.begin(), entries.end());
  std::vector<std::vector<std::uint64_t>> repeats;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].id != entries[i - 1].id) continue;
    if (i == 1 || entries[i - 2].id != entries[i].id) repeats.push_back({entries[i - 1].index});
    repeats.back().push_back(entries[i].index);
  }
  std::sort(repeats.begin(), repeats.end());
  return repeats;
}

// Only hashes were kept: the lines are read once more to name the ids.
Result<std::map<std::uint64_t, std::string>> ids_of_lines(const std::string& path,
                                                          std::vector<std::uint64_t> indexes) {
  std::sort(indexes.begin(), indexes.end());
  COLIBRI_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::open(path));
  std::map<std::uint64_t, std::string> ids;
  JsonlLine line;
  for (;;) {
    COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, reader.next(line));
    if (event != JsonlReader::Event::line || ids.size() == indexes.size()) return ids;
    if (std::binary_search(indexes.begin(), indexes.end(), line.index)) {
      ids[line.index] = request_line_id(line.text, line.index);
    }
  }
}

void append_lines(std::string& message, const std::vector<std::uint64_t>& lines) {
  const std::size_t shown = std::min(lines.size(), kMaxReported);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) message += i + 1 == lines.size() ? " and " : ", ";
    message += std::to_string(lines[i]);
  }
  if (shown < lines.size()) message += " and " + std::to_string(lines.size() - shown) + " more";
}

Status duplicate_error(const std::string& path, const std::vector<std::vector<std::uint64_t>>& repeats) {
  const std::size_t shown = std::min(repeats.size(), kMaxReported);
  std::vector<std::uint64_t> firsts;
  for (std::size_t i = 0; i < shown; ++i) firsts.push_back(repeats[i].front());
  COLIBRI_ASSIGN_OR_RETURN(const auto ids, ids_of_lines(path, firsts));
  std::string message = "ids must differ, lines counted from 0:";
  for (std::size_t i = 0; i < shown; ++i) {
    message += i == 0 ? " id " : "; id ";
    if (const auto id = ids.find(firsts[i]); id != ids.end()) append_json_string(message, id->second);
    message += " appears in lines ";
    append_lines(message, repeats[i]);
  }
  if (shown < repeats.size()) message += "; and " + std::to_string(repeats.size() - shown) + " more ids";
  return {ErrorCode::invalid_input, message + "; give each line its own id"};
}

}  // namespace

Result<InputScan> scan_requests(const std::string& path, const std::function<bool()>& stopping) {
  COLIBRI_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::open(path));
  if (!reader.is_regular_file()) {
    return Status(
        ErrorCode::unsupported,
        "this input can be read only once, so it cannot be checked first: '" + path + "'; use a file");
  }
  InputScan scan;
  StreamHash128 digest;
  std::vector<IdEntry> entries;
  JsonlLine line;
  for (;;) {
    COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, reader.next(line));
    if (event != JsonlReader::Event::line) break;
    if (stopping && stopping())
      return Status(ErrorCode::cancelled, "looking through the requests was stopped");
    ++scan.requests;
    scan.longest_line = std::max<std::uint64_t>(scan.longest_line, line.text.size());
    // Sizes keep apart what the same bytes cut into other lines would be.
    const std::uint64_t frame[2] = {line.index, line.text.size()};
    char frame_bytes[sizeof(frame)];
    std::memcpy(frame_bytes, frame, sizeof(frame));
    digest.update({frame_bytes, sizeof(frame_bytes)});
    digest.update(line.text);
    if (line.too_long) continue;
    const std::string id = request_line_id(line.text, line.index);
    if (!id.empty()) entries.push_back({content_hash128(id), line.index});
  }
  scan.lines = reader.lines_consumed();
  scan.bytes = reader.bytes_consumed();
  scan.digest = digest.digest();
  if (const auto repeats = find_repeats(entries); !repeats.empty()) return duplicate_error(path, repeats);
  return scan;
}

}  // namespace colibri
