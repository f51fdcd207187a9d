// Kinds of file systems by their magic number, and what is behind fuse by the list of mounts.
#include "io/container/file_system.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

namespace colibri {
namespace {

struct Known {
  std::uint64_t magic;
  std::string_view name;
  bool network;
};

// statfs(2), and the sources of those that are not in it.
constexpr Known kKnown[] = {
    {0xEF53, "ext4", false},  // ext2 and ext3 have the same number
    {0x58465342, "xfs", false},   {0x9123683E, "btrfs", false},    {0xF2F52010, "f2fs", false},
    {0x2FC12FC1, "zfs", false},   {0xCA451A4E, "bcachefs", false}, {0x01021994, "tmpfs", false},
    {0x858458F6, "ramfs", false}, {0x794C7630, "overlay", false},  {0x6A656A63, "virtiofs", false},
    {0x65735546, "fuse", false},  {0x5346544E, "ntfs", false},     {0x7366746E, "ntfs3", false},
    {0x4D44, "vfat", false},      {0x2011BAB0, "exfat", false},    {0x73717368, "squashfs", false},
    {0xE0F5E1E2, "erofs", false}, {0x7461636F, "ocfs2", false},    {0x01161970, "gfs2", false},
    {0x6969, "nfs", true},        {0xFF534D42, "cifs", true},      {0xFE534D42, "smb2", true},
    {0x517B, "smb", true},        {0x01021997, "9p", true},        {0x00C36400, "ceph", true},
    {0x0BD00BD0, "lustre", true}, {0x47504653, "gpfs", true},      {0x19830326, "beegfs", true},
    {0xAAD7AAEA, "panfs", true},  {0x5346414F, "afs", true},       {0x6B414653, "afs", true},
    {0x73757245, "coda", true},   {0x20030528, "orangefs", true},
};

// Types of mounts beside those above; fuse has the name of its program as a subtype.
constexpr std::string_view kNetworkTypes[] = {"nfs4", "smb3", "lustre_lite", "glusterfs", "fhgfs"};
constexpr std::string_view kNetworkPrograms[] = {"sshfs",     "s3fs",    "rclone",    "gcsfuse",  "goofys",
                                                 "glusterfs", "ceph",    "ceph-fuse", "davfs2",   "curlftpfs",
                                                 "smbnetfs",  "juicefs", "cvmfs2",    "blobfuse", "blobfuse2",
                                                 "mount-s3",  "geesefs", "seaweedfs", "moosefs",  "mfs"};

std::string read_mounts() {
  std::ifstream file("/proc/self/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

FileSystem file_system_of_magic(std::uint64_t magic) {
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [magic](const Known& one) { return one.magic == magic; });
  if (known != std::end(kKnown)) return {std::string(known->name), known->network};
  char text[40];
  std::snprintf(text, sizeof text, "unknown (0x%llx)", static_cast<unsigned long long>(magic));
  return {text, false};
}

// Fields of a line: id, parent, MAJOR:MINOR, root, mount point, options, any number of optional ones, "-",
// type, source, options (proc_pid_mountinfo(5)).
std::string mount_type(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string device = std::to_string(major) + ":" + std::to_string(minor);
  std::istringstream lines{std::string(mountinfo)};
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string field;
    if (!(fields >> field >> field >> field) || field != device) continue;
    while (fields >> field && field != "-") {
    }
    if (fields >> field) found = field;
  }
  return found;
}

bool is_network_type(std::string_view type) {
  constexpr std::string_view kFuse = "fuse.";
  if (type.starts_with(kFuse)) {
    const std::string_view program = type.substr(kFuse.size());
    return std::find(std::begin(kNetworkPrograms), std::end(kNetworkPrograms), program) !=
           std::end(kNetworkPrograms);
  }
  if (std::find(std::begin(kNetworkTypes), std::end(kNetworkTypes), type) != std::end(kNetworkTypes))
    return true;
  return std::any_of(std::begin(kKnown), std::end(kKnown),
                     [type](const Known& one) { return one.network && one.name == type; });
}

std::string network_advice(const FileSystem& kind, const std::filesystem::path& file) {
  if (!kind.network) return {};
  return "experts lie on a network file system (" + kind.name +
         "), which limits every read: " + file.string() +
         "; copy the model to a local drive: colibri stage MODEL DIR";
}

FileSystem file_system_of(const std::filesystem::path& path) {
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return {"unknown", false};
  // f_type is signed on some machines.
  FileSystem found = file_system_of_magic(static_cast<std::uint32_t>(facts.f_type));
  struct stat status {};
  if (found.name != "fuse" || ::stat(path.c_str(), &status) != 0) return found;
  const std::string type = mount_type(read_mounts(), major(status.st_dev), minor(status.st_dev));
  if (!type.empty()) found = {type, is_network_type(type)};
  return found;
}

}  // namespace colibri
