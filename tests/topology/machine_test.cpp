// The machine model over copied /proc and /sys trees, and against the kernel on this machine.
#include "topology/machine.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/topology/fake_tree.hpp"
#include "topology/cpu_list.hpp"
#include "topology/machine_check.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri {
namespace {

using testing::FakeTree;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr const char* kVersion2Mount =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kVersion1Mounts =
    "31 24 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n";

Machine machine_of(const FakeTree& tree) {
  Result<Machine> machine = read_machine(tree.root());
  EXPECT_TRUE(machine.is_ok()) << machine.status().to_string();
  return machine ? *machine : Machine{};
}

TEST(Machine, WithoutCgroups) {
  FakeTree tree;
  tree.plain_machine();
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.cpus, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(machine.cpu_quota, 0);
  EXPECT_EQ(machine.default_threads(), 8u);
  EXPECT_EQ(machine.memory_available, 8 * kGiB);
  EXPECT_EQ(machine.memory_limit_free, 0u);
  EXPECT_EQ(machine.usable_memory(), 8 * kGiB / 5 * 4);
  EXPECT_EQ(machine.numa_nodes, 1u);
  EXPECT_EQ(machine.nodes.at(0).cpus, machine.cpus);
}

TEST(Machine, QuotaOfTwoCpusOnAWiderAffinity) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo", kVersion2Mount)
      .file("proc/self/cgroup", "0::/job\n")
      .file("sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.cpu_quota, 2);
  EXPECT_EQ(machine.default_threads(), 2u);
  EXPECT_EQ(machine.cpu_quota_origin, "cgroup cpu.max of /job");
}

TEST(Machine, QuotaIsRoundedUpAndNeverZeroThreads) {
  for (const auto& [text, threads] : {std::pair<const char*, std::uint32_t>{"150000 100000", 2},
                                      {"1000 100000", 1},
                                      {"max 100000", 8},
                                      {"1600000 100000", 8},
                                      {"50000 25000", 2},
                                      {"garbage", 8},
                                      {"", 8},
                                      {"100000 0", 8}}) {
    FakeTree tree;
    tree.plain_machine()
        .file("proc/self/mountinfo", kVersion2Mount)
        .file("proc/self/cgroup", "0::/\n")
        .file("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(machine_of(tree).default_threads(), threads) << text;
  }
}

TEST(Machine, Version2TightestOfNestedGroupsWins) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo", kVersion2Mount)
      .file("proc/self/cgroup", "0::/outer/inner\n")
      .file("sys/fs/cgroup/outer/inner/memory.max", "max\n")
      .file("sys/fs/cgroup/outer/inner/memory.current", "1073741824\n")
      .file("sys/fs/cgroup/outer/inner/cpu.max", "400000 100000\n")
      .file("sys/fs/cgroup/outer/cpu.max", "300000 100000\n")
      .file("sys/fs/cgroup/outer/memory.max", "4294967296\n")
      .file("sys/fs/cgroup/outer/memory.current", "3221225472\n")
      .file("sys/fs/cgroup/outer/memory.stat", "anon 1\nfile 5\ninactive_file 1073741824\nactive_file 7\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.cpu_quota, 3);
  EXPECT_EQ(machine.cpu_quota_origin, "cgroup cpu.max of /outer");
  // 4 GiB limit, 3 GiB used, of which 1 GiB is page cache that can go.
  EXPECT_EQ(machine.memory_limit_free, 2 * kGiB);
  EXPECT_EQ(machine.memory_limit_origin, "cgroup memory.max of /outer");
  EXPECT_EQ(machine.usable_memory(), 2 * kGiB / 10 * 9);
}

TEST(Machine, Version2ThrottlingLimitCounts) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo", kVersion2Mount)
      .file("proc/self/cgroup", "0::/job\n")
      .file("sys/fs/cgroup/job/memory.max", "4294967296\n")
      .file("sys/fs/cgroup/job/memory.high", "1073741824\n")
      .file("sys/fs/cgroup/job/memory.current", "0\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.memory_limit_free, kGiB);
  EXPECT_EQ(machine.memory_limit_origin, "cgroup memory.high of /job");
}

TEST(Machine, AnExhaustedLimitIsNotTakenForNone) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo", kVersion2Mount)
      .file("proc/self/cgroup", "0::/job\n")
      .file("sys/fs/cgroup/job/memory.max", "1000\n")
      .file("sys/fs/cgroup/job/memory.current", "2000\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.memory_limit_free, 1u);
  EXPECT_EQ(machine.usable_memory(), 0u);
}

TEST(Machine, Version1) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo", kVersion1Mounts)
      .file("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n")
      .file("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
      .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .file("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2147483648\n")
      .file("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "1073741824\n")
      .file("sys/fs/cgroup/memory/docker/abc/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\n")
      .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .file("sys/fs/cgroup/memory/memory.usage_in_bytes", "5368709120\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.cpu_quota, 2.5);
  EXPECT_EQ(machine.default_threads(), 3u);
  EXPECT_EQ(machine.cpu_quota_origin, "cgroup cpu.cfs_quota_us of /docker/abc");
  EXPECT_EQ(machine.memory_limit_free, 3 * kGiB / 2);
  EXPECT_EQ(machine.memory_limit_origin, "cgroup memory.limit_in_bytes of /docker/abc");
}

// A container that shares the host's names: the mount shows only its own part of the hierarchy.
TEST(Machine, ContainerWithAMountedSubtree) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo",
            "31 24 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "32 24 0:28 /docker/abc /sys/fs/my\\040cpu rw - cgroup cgroup rw,cpu\n")
      .file("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu:/docker/abc/sub\n")
      .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
      .file("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n")
      .file("sys/fs/my cpu/sub/cpu.cfs_quota_us", "100000\n")
      .file("sys/fs/my cpu/sub/cpu.cfs_period_us", "100000\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.memory_limit_free, kGiB);
  EXPECT_EQ(machine.cpu_quota, 1);
  EXPECT_EQ(machine.cpu_quota_origin, "cgroup cpu.cfs_quota_us of /sub");
}

// Version 2 beside version 1, as systemd's hybrid mode mounts it: each controller where it lives.
TEST(Machine, Hybrid) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/mountinfo",
            std::string(kVersion1Mounts) + "41 24 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
      .file("proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/\n0::/../../elsewhere\n")
      .file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n")
      .file("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n")
      .file("sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
  const Machine machine = machine_of(tree);
  EXPECT_EQ(machine.memory_limit_free, kGiB);
  EXPECT_EQ(machine.default_threads(), 1u);
}

TEST(Machine, NodesOfFiles) {
  FakeTree tree;
  tree.plain_machine()
      .file("proc/self/status", "Cpus_allowed_list:\t0-2,4\nMems_allowed_list:\t0-1\n")
      .file("sys/devices/system/node/has_memory", "0-1,3\n")
      .file("sys/devices/system/node/node0/cpulist", "0-3\n")
      .file("sys/devices/system/node/node1/cpulist", "4-7\n");
  const Machine machine = machine_of(tree);
  ASSERT_EQ(machine.numa_nodes, 2u);
  EXPECT_EQ(machine.nodes[0].cpus, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(machine.nodes[1].index, 1u);
  EXPECT_EQ(machine.nodes[1].cpus, (std::vector<std::uint32_t>{4}));
}

TEST(Machine, UnreadableIsAnError) {
  FakeTree tree;
  const Result<Machine> machine = read_machine(tree.root());
  ASSERT_FALSE(machine.is_ok());
  EXPECT_EQ(machine.status().code(), ErrorCode::not_found);
  tree.file("proc/self/status", "Name: x\n").file("proc/meminfo", "MemTotal: 5 kB\n");
  EXPECT_FALSE(read_machine(tree.root()).is_ok());
}

TEST(Machine, ThisOneAgreesWithTheKernel) {
  const Result<Machine> machine = read_machine();
  ASSERT_TRUE(machine.is_ok()) << machine.status().to_string();
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  EXPECT_EQ(machine->cpus, cpus);
  EXPECT_GT(machine->usable_memory(), 0u);
  // hwloc and the files under /sys, read as another root, tell of the same nodes.
  const Result<Machine> from_files = read_machine("/.");
  ASSERT_TRUE(from_files.is_ok());
  ASSERT_EQ(machine->numa_nodes, from_files->numa_nodes);
  for (std::size_t i = 0; i < machine->nodes.size(); ++i) {
    EXPECT_EQ(machine->nodes[i].index, from_files->nodes[i].index);
    EXPECT_EQ(machine->nodes[i].cpus, from_files->nodes[i].cpus);
  }
}

TEST(ResidentMemory, GrowsWithTouchedPages) {
  const std::uint64_t before = resident_bytes();
  ASSERT_GT(before, 0u);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  // Mapped, since a heap may hand out pages that are resident already.
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  const std::uint64_t with = resident_bytes();
  munmap(memory, kBytes);
  EXPECT_GE(with, before + kBytes * 9 / 10);
  EXPECT_LT(resident_bytes(), with - kBytes / 2);
  EXPECT_GE(peak_resident_bytes(), before + kBytes * 9 / 10);
}

TEST(PinThisThread, SetsTheAffinityOfThisThreadOnly) {
  const Result<Machine> machine = read_machine();
  ASSERT_TRUE(machine.is_ok());
  const std::vector<std::uint32_t> last = {machine->cpus.back()};
  std::thread([&] {
    const Status status = pin_this_thread(last);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(sched_getcpu(), static_cast<int>(last[0]));
    EXPECT_EQ(read_machine()->cpus, last);
    EXPECT_TRUE(pin_this_thread({}).is_ok());
    EXPECT_EQ(read_machine()->cpus, last);
  }).join();
  EXPECT_EQ(read_machine()->cpus, machine->cpus);
}

TEST(PinThisThread, RefusesCpusThatAreNotThere) {
  const Status status = pin_this_thread(std::vector<std::uint32_t>{8190, 8191});
  ASSERT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("8190-8191"), std::string_view::npos) << status.message();
  EXPECT_FALSE(pin_this_thread(std::vector<std::uint32_t>{1u << 31}).is_ok());
}

TEST(CheckPlacement, NamesWhatThisMachineLacks) {
  Machine machine;
  machine.cpus = {0, 1, 2, 3};
  machine.nodes = {{0, machine.cpus}};
  PipelineSpec spec;
  const Origin origin{Origin::Kind::file, "p.yaml", 4, 9};
  spec.stages = {{.name = "a", .kind = "read", .cpus = {2, 3}},
                 {.name = "b", .kind = "read", .cpus = {3, 4, 5}, .cpus_origin = origin},
                 {.name = "c", .kind = "read", .numa_node = 1, .numa_node_origin = origin},
                 {.name = "d", .kind = "read", .numa_node = 0}};
  PipelineProblems problems;
  check_placement(spec, machine, problems);
  EXPECT_EQ(
      problems.lines,
      (std::vector<std::string>{
          "p.yaml:4:9: stages.b.cpus: CPUs 4-5 may not be used on this machine; expected some of 0-3",
          "p.yaml:4:9: stages.c.numa_node: no NUMA node 1 may be used on this machine; expected one of 0"}));
}

TEST(CpuList, ReadsAndWrites) {
  EXPECT_EQ(*parse_cpu_list("0-3,8"), (std::vector<std::uint32_t>{0, 1, 2, 3, 8}));
  EXPECT_EQ(*parse_cpu_list("8,0-1"), (std::vector<std::uint32_t>{0, 1, 8}));
  for (const char* text : {"", ",", "1,", "-1", "1-", "3-2", "a", "1 2", "0-2,1", "8192", "0-4294967295"}) {
    EXPECT_FALSE(parse_cpu_list(text).is_ok()) << text;
  }
  EXPECT_EQ(format_cpu_list(std::vector<std::uint32_t>{0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
  EXPECT_EQ(format_cpu_list({}), "");
}

}  // namespace
}  // namespace colibri
