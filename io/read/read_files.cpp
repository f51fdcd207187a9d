#include "io/read/read_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace colibri {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

Status open_failed(const std::filesystem::path& path, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::not_found : ErrorCode::io;
  return Status(code, "cannot open file for reading: " + path.string() + ": " + reason(error) +
                          "; check the path and its permissions")
      .in_file(path.string());
}

}  // namespace

Result<std::unique_ptr<ReadFiles>> ReadFiles::open(std::span<const std::filesystem::path> paths,
                                                   DirectIo direct, std::function<void(std::string)> log,
                                                   int direct_open_error) {
  if (paths.empty()) {
    return Status(ErrorCode::invalid_input, "no files to read from: 0 files; name at least one");
  }
  std::unique_ptr<ReadFiles> files(new ReadFiles(paths.size(), direct, std::move(log)));
  for (std::size_t i = 0; i < paths.size(); ++i) {
    files->files_[i].path = paths[i];
    COLIBRI_RETURN_IF_ERROR(files->open_file(files->files_[i], direct_open_error));
  }
  return files;
}

ReadFiles::~ReadFiles() {
  for (File& file : files_) {
    if (file.descriptor >= 0) ::close(file.descriptor);
  }
}

Status ReadFiles::open_file(File& file, int direct_open_error) {
  if (direct_ != DirectIo::off) {
    if (direct_open_error == 0) {
      file.descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    }
    const int error = direct_open_error != 0 ? direct_open_error : errno;
    file.direct = file.descriptor >= 0;
    // EINVAL is how file systems refuse O_DIRECT; anything else is about the file itself.
    if (!file.direct && error != EINVAL) return open_failed(file.path, error);
    if (!file.direct && direct_ == DirectIo::on) {
      return Status(ErrorCode::unsupported, "O_DIRECT is refused by the file system of " +
                                                file.path.string() +
                                                "; move the file to a local drive or allow buffered reads")
          .in_file(file.path.string());
    }
    if (!file.direct) log_buffered(file, "at open", error);
  }
  if (file.descriptor < 0) {
    file.descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file.descriptor < 0) return open_failed(file.path, errno);
  }
  struct stat info {};
  if (::fstat(file.descriptor, &info) != 0) return open_failed(file.path, errno);
  if (S_ISDIR(info.st_mode)) return open_failed(file.path, EISDIR);
  // Records are read whole and in no order: read-ahead would fetch neighbours in vain.
  (void)::posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_RANDOM);
  return Status::ok();
}

DirectState ReadFiles::direct_state() const noexcept {
  std::size_t direct = 0;
  for (const File& file : files_) direct += file.direct.load(std::memory_order_acquire) ? 1 : 0;
  if (direct == files_.size()) return DirectState::direct;
  return direct == 0 ? DirectState::buffered : DirectState::mixed;
}

std::optional<std::uint64_t> ReadFiles::size(std::uint32_t file) const noexcept {
  struct stat info {};
  if (::fstat(descriptor(file), &info) != 0 || info.st_size < 0) return std::nullopt;
  return static_cast<std::uint64_t>(info.st_size);
}

bool ReadFiles::fall_back_to_buffered(std::uint32_t index, int error) {
  if (direct_ == DirectIo::on) return false;
  File& file = files_[index];
  {
    // Under the lock, so that a second lane comes back only when O_DIRECT is really off.
    const std::lock_guard lock(fall_back_mutex_);
    if (!file.direct.load(std::memory_order_relaxed)) return true;
    const int flags = ::fcntl(file.descriptor, F_GETFL);
    if (flags < 0 || ::fcntl(file.descriptor, F_SETFL, flags & ~O_DIRECT) != 0) return false;
    file.direct.store(false, std::memory_order_release);
  }
  log_buffered(file, "at the first read", error);
  return true;
}

void ReadFiles::drop_cache(std::uint32_t file, std::uint64_t offset, std::uint64_t length) const noexcept {
  if (direct_ == DirectIo::off || is_direct(file)) return;
  (void)::posix_fadvise(descriptor(file), static_cast<off_t>(offset), static_cast<off_t>(length),
                        POSIX_FADV_DONTNEED);
}

void ReadFiles::log_buffered(const File& file, std::string_view when, int error) const {
  if (!log_) return;
  log_("O_DIRECT was refused " + std::string(when) + " (" + reason(error) + "), reading buffered: " +
       file.path.string() + "; for full speed keep the file on a local drive with ext4 or xfs");
}

}  // namespace colibri
