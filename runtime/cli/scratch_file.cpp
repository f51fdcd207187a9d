// Made and unlinked in one go, then written through a second descriptor.
#include "runtime/cli/scratch_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/container/file_handle.hpp"
#include "io/container/free_space.hpp"
#include "io/container/write_behind.hpp"

namespace colibri::cli {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;

}  // namespace

ScratchFile::ScratchFile(int descriptor)
    : descriptor_(descriptor),
      path_("/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor)) {}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      write_seconds_(other.write_seconds_) {}

ScratchFile::~ScratchFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<ScratchFile> ScratchFile::create(const std::filesystem::path& folder, std::uint64_t bytes,
                                        const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                        const std::function<bool()>& cancelled) {
  FreeSpace space;
  space.need(folder, bytes);
  COLIBRI_RETURN_IF_ERROR(space.check());
  std::string name = (folder / ".colibri-bench-XXXXXX").string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) {
    return Status(ErrorCode::io, "cannot create a file to measure with: " + folder.string() + ": " +
                                     std::generic_category().message(errno) +
                                     "; name a folder that you may write to");
  }
  ::unlink(name.c_str());
  ScratchFile file(descriptor);
  if (Status filled = file.fill(bytes, progress, cancelled); !filled) {
    return std::move(filled).at("folder " + folder.string());
  }
  return file;
}

Status ScratchFile::fill(std::uint64_t bytes,
                         const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                         const std::function<bool()>& cancelled) {
  COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_writing(path_));
  const auto begin = std::chrono::steady_clock::now();
  WriteBehind write_behind;
  std::vector<std::uint64_t> words(kPiece / sizeof(std::uint64_t));
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  for (std::uint64_t done = 0; done < bytes;) {
    // Bytes that no drive can make smaller; xorshift64 (Marsaglia 2003).
    for (std::uint64_t& word : words) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      word = state;
    }
    const auto piece = std::as_bytes(std::span(words)).first(std::min<std::uint64_t>(kPiece, bytes - done));
    COLIBRI_RETURN_IF_ERROR(file.write_at(done, piece));
    done += piece.size();
    write_behind.advance(file, done);
    if (progress) progress(done, bytes);
    if (cancelled && cancelled()) return {ErrorCode::cancelled, "writing the file was stopped"};
  }
  COLIBRI_RETURN_IF_ERROR(file.sync());
  file.settle(0, bytes);
  write_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return Status::ok();
}

}  // namespace colibri::cli
