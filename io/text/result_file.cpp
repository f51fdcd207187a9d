#include "io/text/result_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "io/text/result_sort.hpp"

namespace colibri {
namespace {

constexpr unsigned kFileMode = 0644;
// Lines and entries are handed to the system at the latest when this much has gathered.
constexpr std::size_t kBytesGathered = std::size_t{1} << 20;

// A link is followed once, so that a rename replaces the file and not the link.
std::string real_path(const std::string& path) {
  std::error_code error;
  const auto resolved = std::filesystem::canonical(path, error);
  return error ? path : resolved.string();
}

bool is_same_file(int descriptor, const std::string& path) {
  struct stat one {};
  struct stat other {};
  return !path.empty() && ::fstat(descriptor, &one) == 0 && ::stat(path.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

ResultFile::ResultFile(std::string path, JobIdentity identity)
    : path_(std::move(path)), journal_path_(path_ + ".journal"), identity_(std::move(identity)) {}

// A job that failed before it began leaves no empty file behind.
ResultFile::~ResultFile() {
  if (created_ && !begun_) ::unlink(path_.c_str());
}

namespace {

// Nothing, an empty file, or one that starts as a line of JSON does: what a fresh job may replace unasked.
bool looks_like_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = '{';
  return !file || !file.get(first) || first == '{';
}

}  // namespace

bool ResultFile::fits(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
}

Result<std::unique_ptr<ResultFile>> ResultFile::open(const std::string& path, ResultMode mode,
                                                     const JobIdentity& identity,
                                                     const std::string& input_path) {
  std::unique_ptr<ResultFile> file(new ResultFile(real_path(path), identity));
  std::error_code ignored;
  if (mode == ResultMode::fresh && std::filesystem::exists(file->journal_path_, ignored)) {
    return Status(ErrorCode::invalid_input, "an earlier job has not finished: '" + path +
                                                "'; use --resume to go on or --force to start over");
  }
  if (mode == ResultMode::fresh && !looks_like_results(file->path_)) {
    return Status(ErrorCode::invalid_input, "this is not a results file: '" + path +
                                                "'; name another file, or use --force to replace it");
  }
  COLIBRI_RETURN_IF_ERROR(file->open_data(input_path));
  if (mode == ResultMode::resume) COLIBRI_RETURN_IF_ERROR(file->take_up());
  return file;
}

Status ResultFile::open_data(const std::string& input_path) {
  std::error_code ignored;
  created_ = !std::filesystem::exists(path_, ignored);
  COLIBRI_ASSIGN_OR_RETURN(data_, open_file(path_, O_RDWR | O_CREAT, kFileMode));
  if (is_same_file(data_.get(), input_path)) {
    return {ErrorCode::invalid_input,
            "results would overwrite the requests: '" + path_ + "' is the input; name another file"};
  }
  if (::flock(data_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return {ErrorCode::invalid_input,
            "another process is writing these results: '" + path_ + "'; wait for it or name another file"};
  }
  // Left by a process that died while it sorted or while it created the journal.
  ::unlink((path_ + ".sorted").c_str());
  ::unlink((journal_path_ + ".new").c_str());
  return {};
}

// The journal comes first: from then on what lies in the results file counts only if it is noted.
Status ResultFile::begin() {
  if (begun_) return {};
  begun_ = true;
  COLIBRI_RETURN_IF_ERROR(begin_journal());
  COLIBRI_RETURN_IF_ERROR(publish_journal());
  return truncate_file(data_.get(), 0, path_);
}

Status ResultFile::begin_journal() {
  COLIBRI_ASSIGN_OR_RETURN(const std::string header, encode_journal_header(identity_));
  COLIBRI_ASSIGN_OR_RETURN(journal_,
                           open_file(journal_path_ + ".new", O_RDWR | O_CREAT | O_TRUNC, kFileMode));
  COLIBRI_RETURN_IF_ERROR(write_at(journal_.get(), header, 0, journal_path_));
  entries_begin_ = journal_bytes_ = header.size();
  return {};
}

Status ResultFile::publish_journal() {
  COLIBRI_RETURN_IF_ERROR(write_entries());
  COLIBRI_RETURN_IF_ERROR(sync_file(journal_.get(), journal_path_));
  if (std::rename((journal_path_ + ".new").c_str(), journal_path_.c_str()) != 0) {
    return system_error("create", journal_path_, errno);
  }
  return sync_folder_of(journal_path_);
}

Status ResultFile::remove_journal() {
  if (::unlink(journal_path_.c_str()) != 0 && errno != ENOENT) {
    return system_error("remove", journal_path_, errno);
  }
  return sync_folder_of(journal_path_);
}

Status ResultFile::append(std::uint64_t index, std::string_view line, bool failed) {
  if (!failure_.is_ok()) return failure_;
  JournalEntry entry;
  entry.index = index;
  entry.offset = data_bytes_ + unwritten_.size();
  entry.bytes = line.size();
  entry.line_hash = content_hash64(line);
  entry.failed = failed;
  append_journal_entry(unnoted_, entry);
  unwritten_ += line;
  if (unwritten_.size() >= kBytesGathered) failure_ = write_lines();
  return failure_;
}

Status ResultFile::flush() {
  if (failure_.is_ok()) failure_ = commit();
  return failure_;
}

Status ResultFile::write_lines() {
  COLIBRI_RETURN_IF_ERROR(write_at(data_.get(), unwritten_, data_bytes_, path_));
  data_bytes_ += unwritten_.size();
  unwritten_.clear();
  return {};
}

Status ResultFile::write_entries() {
  COLIBRI_RETURN_IF_ERROR(write_at(journal_.get(), unnoted_, journal_bytes_, journal_path_));
  journal_bytes_ += unnoted_.size();
  unnoted_.clear();
  return {};
}

// An entry must never be on the disk before its line.
Status ResultFile::commit() {
  if (unnoted_.empty()) return {};
  COLIBRI_RETURN_IF_ERROR(write_lines());
  COLIBRI_RETURN_IF_ERROR(sync_file(data_.get(), path_));
  COLIBRI_RETURN_IF_ERROR(write_entries());
  return sync_file(journal_.get(), journal_path_);
}

Status ResultFile::finish(bool in_order) {
  COLIBRI_RETURN_IF_ERROR(flush());
  failure_ = in_order ? sort_lines() : remove_journal();
  return failure_;
}

// The journal goes before the sorted file takes its place: it speaks of the unsorted one. Between the
// two the file is complete without a journal, which resume takes for what it is.
Status ResultFile::sort_lines() {
  const std::string sorted_path = path_ + ".sorted";
  auto sorted = write_sorted_results({journal_.get(), journal_path_, entries_begin_, journal_bytes_},
                                     data_.get(), path_, sorted_path);
  if (!sorted) {
    ::unlink(sorted_path.c_str());
    return std::move(sorted).status();
  }
  COLIBRI_RETURN_IF_ERROR(remove_journal());
  if (!*sorted) return {};
  if (std::rename(sorted_path.c_str(), path_.c_str()) != 0) return system_error("replace", path_, errno);
  return sync_folder_of(path_);
}

}  // namespace colibri
