// FileSystem: what kind of file system a path lies on, and whether reads of it cross a network.
//
// Experts are read at the speed of the drive, so a model on a network mount is worth a line of
// advice. Local file systems are only named.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace colibri {

struct FileSystem {
  std::string name;      // "ext4", "nfs", "fuse.sshfs"; "unknown (0x...)" for one that is not in the table
  bool network = false;  // another machine answers its reads
};

// Of an existing path; "unknown" when the system does not say.
FileSystem file_system_of(const std::filesystem::path& path);

// What to do about files of a model on a network file system; empty for a local one.
std::string network_advice(const FileSystem& kind, const std::filesystem::path& file);

// What `file_system_of` goes by, apart for tests. `magic`: statfs::f_type.
FileSystem file_system_of_magic(std::uint64_t magic);
// The type of the mount of device MAJOR:MINOR in the text of /proc/self/mountinfo; empty: not there. Of fuse
// mounts only this tells what is behind them.
std::string mount_type(std::string_view mountinfo, unsigned major, unsigned minor);
// Whether a type as in mountinfo ("fuse.sshfs", "nfs4") is that of a network file system.
bool is_network_type(std::string_view type);

}  // namespace colibri
