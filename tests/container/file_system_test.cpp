// Kinds of file systems: against the kernel's own numbers, and what the system's list of mounts says.
#include "io/container/file_system.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace colibri {
namespace {

TEST(FileSystem, NumbersAreThoseOfTheKernel) {
  const struct {
    std::uint64_t magic;
    const char* name;
    bool network;
  } cases[] = {
      {EXT4_SUPER_MAGIC, "ext4", false},
      {XFS_SUPER_MAGIC, "xfs", false},
      {BTRFS_SUPER_MAGIC, "btrfs", false},
      {F2FS_SUPER_MAGIC, "f2fs", false},
      {TMPFS_MAGIC, "tmpfs", false},
      {OVERLAYFS_SUPER_MAGIC, "overlay", false},
      {NFS_SUPER_MAGIC, "nfs", true},
      {SMB_SUPER_MAGIC, "smb", true},
      {V9FS_MAGIC, "9p", true},
      {AFS_SUPER_MAGIC, "afs", true},
      {CODA_SUPER_MAGIC, "coda", true},
#ifdef CIFS_SUPER_MAGIC
      {CIFS_SUPER_MAGIC, "cifs", true},
#endif
#ifdef SMB2_SUPER_MAGIC
      {SMB2_SUPER_MAGIC, "smb2", true},
#endif
#ifdef CEPH_SUPER_MAGIC
      {CEPH_SUPER_MAGIC, "ceph", true},
#endif
#ifdef FUSE_SUPER_MAGIC
      {FUSE_SUPER_MAGIC, "fuse", false},
#endif
  };
  for (const auto& one : cases) {
    const FileSystem found = file_system_of_magic(one.magic);
    EXPECT_EQ(found.name, one.name);
    EXPECT_EQ(found.network, one.network) << one.name;
  }
  EXPECT_EQ(file_system_of_magic(0x12345).name, "unknown (0x12345)");
}

TEST(FileSystem, BehindFuseTheListOfMountsTells) {
  const char* mounts =
      "22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
      "77 28 0:61 / /mnt/models rw,relatime shared:30 master:2 - fuse.sshfs me@host:/models rw,user_id=0\n"
      "78 28 0:62 / /mnt/disk rw - fuse.ntfs-3g /dev/sdb1 rw\n"
      "79 28 0:63 / /broken rw\n";
  EXPECT_EQ(mount_type(mounts, 0, 61), "fuse.sshfs");
  EXPECT_EQ(mount_type(mounts, 0, 62), "fuse.ntfs-3g");
  EXPECT_EQ(mount_type(mounts, 0, 6), "");
  EXPECT_EQ(mount_type(mounts, 0, 63), "");
  EXPECT_EQ(mount_type("", 0, 63), "");
  for (const char* type : {"fuse.sshfs", "fuse.rclone", "nfs", "nfs4", "cifs", "9p", "lustre", "ceph"}) {
    EXPECT_TRUE(is_network_type(type)) << type;
  }
  for (const char* type : {"fuse.ntfs-3g", "fuseblk", "ext4", "xfs", "tmpfs", "overlay", ""}) {
    EXPECT_FALSE(is_network_type(type)) << type;
  }
}

TEST(FileSystem, ANetworkGetsAdvice) {
  EXPECT_EQ(network_advice({"ext4", false}, "/m/experts.bin"), "");
  const std::string advice = network_advice({"nfs", true}, "/m/experts.bin");
  for (const char* word : {"(nfs)", "/m/experts.bin", "colibri stage MODEL DIR"}) {
    EXPECT_NE(advice.find(word), std::string::npos) << advice;
  }
}

// Every mounted kind that is known by its own name has it. ext2 and ext3 have the number of ext4.
TEST(FileSystem, NamesAreThoseOfTheMounts) {
  const std::set<std::string> known = {"ext4", "xfs",      "btrfs", "tmpfs", "overlay",
                                       "9p",   "virtiofs", "nfs",   "f2fs"};
  std::ifstream mounts("/proc/self/mounts");
  std::map<std::string, std::string> types;  // by mount point: the last one mounted there shows
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string source, point, type;
    fields >> source >> point >> type;
    types[point] = type;
  }
  EXPECT_EQ(file_system_of("/no/such/path").name, "unknown");
  int compared = 0;
  for (const auto& [point, type] : types) {
    std::error_code error;
    if (!known.contains(type) || !std::filesystem::is_directory(point, error)) continue;
    EXPECT_EQ(file_system_of(point).name, type) << point;
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "no mount of a kind that is known";
}

}  // namespace
}  // namespace colibri
