// POSIX files with checked, complete reads and writes.
#include "io/container/file_handle.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace colibri {
namespace {

constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;  // one call moves less than 2 GiB on Linux
constexpr mode_t kFileMode = 0644;

std::string system_reason(int error) { return std::generic_category().message(error); }

Status path_failure(ErrorCode code, std::string_view what, const std::filesystem::path& path,
                    const std::string& rest, std::uint64_t offset = Status::kNoOffset) {
  return Status(code, std::string(what) + ": " + path.string() + rest).in_file(path.string(), offset);
}

Status open_failure(const std::filesystem::path& path, std::string_view purpose, int error) {
  std::error_code ignored;
  if (error == ENOENT && std::filesystem::is_symlink(path, ignored)) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
    return path_failure(ErrorCode::not_found, "the link points to a file that does not exist", path,
                        " -> " + target.string() + "; download the file again or repair the link");
  }
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  return path_failure(code, "cannot open file for " + std::string(purpose), path,
                      ": " + system_reason(error));
}

}  // namespace

Result<FileHandle> FileHandle::open(const std::filesystem::path& path, int flags, std::string_view purpose) {
  // O_NONBLOCK: a pipe put in the place of a file must not hang the open.
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, kFileMode);
  if (descriptor < 0) return open_failure(path, purpose, errno);
  FileHandle file(path, descriptor);
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return open_failure(path, purpose, errno);
  if (!S_ISREG(facts.st_mode)) {
    return path_failure(ErrorCode::invalid_input, "not a regular file", path, "");
  }
  file.size_ = static_cast<std::uint64_t>(facts.st_size);
  file.modified_ns_ = std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  return file;
}

Result<FileHandle> FileHandle::open_for_reading(const std::filesystem::path& path) {
  return open(path, O_RDONLY, "reading");
}

Result<FileHandle> FileHandle::open_for_writing(const std::filesystem::path& path) {
  return open(path, O_RDWR | O_CREAT, "writing");
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      modified_ns_(other.modified_ns_) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status FileHandle::failure(ErrorCode code, std::string_view what, const std::string& rest,
                           std::uint64_t offset) const {
  return path_failure(code, what, path_, rest, offset);
}

Status FileHandle::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - done, kLargestTransfer);
    const ssize_t got = ::pread(descriptor_, bytes.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return failure(ErrorCode::io, "cannot read file",
                     ", offset " + std::to_string(offset + done) + ": " + system_reason(errno),
                     offset + done);
    }
    if (got == 0) {
      return failure(ErrorCode::corrupt, "file ends too early",
                     ", expected " + std::to_string(bytes.size()) + " bytes at offset " +
                         std::to_string(offset) + ", found " + std::to_string(done),
                     offset + done);
    }
    done += static_cast<std::size_t>(got);
  }
  return Status::ok();
}

Status FileHandle::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - done, kLargestTransfer);
    const ssize_t put = ::pwrite(descriptor_, bytes.data() + done, wanted, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return failure(ErrorCode::io, "cannot write file",
                     ", offset " + std::to_string(offset + done) + ": " + system_reason(errno),
                     offset + done);
    }
    done += static_cast<std::size_t>(put);
  }
  return Status::ok();
}

Status FileHandle::resize(std::uint64_t bytes) const {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0) return Status::ok();
  return failure(ErrorCode::io, "cannot set the size of file",
                 " to " + std::to_string(bytes) + " bytes: " + system_reason(errno));
}

Status FileHandle::lock() const {
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return Status::ok();
  if (errno == EWOULDBLOCK) {
    return failure(ErrorCode::invalid_input, "another process is writing this file",
                   "; wait for it or name another file");
  }
  return failure(ErrorCode::io, "cannot lock file", ": " + system_reason(errno));
}

Status FileHandle::sync() const {
  if (::fsync(descriptor_) == 0) return Status::ok();
  return failure(ErrorCode::io, "cannot flush file to its device", ": " + system_reason(errno));
}

void FileHandle::start_write_back(std::uint64_t offset, std::uint64_t length) const noexcept {
  (void)::sync_file_range(descriptor_, static_cast<off64_t>(offset), static_cast<off64_t>(length),
                          SYNC_FILE_RANGE_WRITE);
}

void FileHandle::settle(std::uint64_t offset, std::uint64_t length) const noexcept {
  (void)::sync_file_range(descriptor_, static_cast<off64_t>(offset), static_cast<off64_t>(length),
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  (void)::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(length),
                        POSIX_FADV_DONTNEED);
}

void FileHandle::read_ahead() const noexcept {
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_reading(path));
  if (file.size() > limit) {
    return path_failure(
        ErrorCode::invalid_input, "file is too large", path,
        ", expected at most " + std::to_string(limit) + " bytes, found " + std::to_string(file.size()));
  }
  std::string text(file.size(), '\0');
  COLIBRI_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  {
    COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_writing(temporary));
    COLIBRI_RETURN_IF_ERROR(file.resize(0));
    COLIBRI_RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
    COLIBRI_RETURN_IF_ERROR(file.sync());
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (!error) return Status::ok();
  return path_failure(ErrorCode::io, "cannot rename file", temporary,
                      " to " + path.string() + ": " + error.message());
}

Status sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return path_failure(ErrorCode::io, "cannot open folder", folder, ": " + system_reason(errno));
  }
  // Some file systems refuse fsync on folders (EINVAL); their renames need none.
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  const int error = errno;
  ::close(descriptor);
  if (!failed) return Status::ok();
  return path_failure(ErrorCode::io, "cannot flush folder to its device", folder,
                      ": " + system_reason(error));
}

}  // namespace colibri
