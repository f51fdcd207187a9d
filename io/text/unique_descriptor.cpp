#include "io/text/unique_descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace colibri {

void UniqueDescriptor::reset() noexcept {
  if (descriptor_ >= 0 && owned_) ::close(descriptor_);
  descriptor_ = -1;
  owned_ = true;
}

Status system_error(std::string_view doing, std::string_view path, int error_number) {
  std::string message = "cannot ";
  message.append(doing).append(" '").append(path).append("': ");
  message += std::generic_category().message(error_number);
  ErrorCode code = ErrorCode::io;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      code = ErrorCode::not_found;
      message += "; check the path";
      break;
    case ENOSPC:
    case EDQUOT: message += "; free space, then go on with --resume"; break;
    case EFBIG: message += "; raise the limit on file sizes (ulimit -f), then go on with --resume"; break;
    case EPIPE: message += "; whoever read it has gone"; break;
    case EIO: message += "; check the drive, then go on with --resume"; break;
    default: break;
  }
  return {code, std::move(message)};
}

Result<UniqueDescriptor> open_file(const std::string& path, int flags, unsigned mode) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return system_error("open", path, errno);
  return UniqueDescriptor(descriptor);
}

Status write_at(int descriptor, std::string_view bytes, std::uint64_t offset, std::string_view path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      return system_error("write", path, errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Status read_at(int descriptor, char* bytes, std::size_t size, std::uint64_t offset, std::string_view path) {
  while (size > 0) {
    const ssize_t count = ::pread(descriptor, bytes, size, static_cast<off_t>(offset));
    if (count < 0) {
      if (errno == EINTR) continue;
      return system_error("read", path, errno);
    }
    if (count == 0) {
      return {ErrorCode::corrupt, "a file ends too early: '" + std::string(path) + "' at byte " +
                                      std::to_string(offset) + "; nothing else may write to it"};
    }
    bytes += count;
    size -= static_cast<std::size_t>(count);
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Status sync_file(int descriptor, std::string_view path) {
  if (::fdatasync(descriptor) != 0) return system_error("sync", path, errno);
  return {};
}

Status sync_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  auto opened = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!opened) return std::move(opened).status();
  // Some file systems (network, FUSE) refuse to sync a folder; their renames are as safe as they get.
  if (::fsync(opened->get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return system_error("sync", folder, errno);
  }
  return {};
}

Result<std::uint64_t> file_size(int descriptor, std::string_view path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return system_error("examine", path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Status truncate_file(int descriptor, std::uint64_t size, std::string_view path) {
  int result = 0;
  do {
    result = ::ftruncate(descriptor, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return system_error("shorten", path, errno);
  return {};
}

}  // namespace colibri
