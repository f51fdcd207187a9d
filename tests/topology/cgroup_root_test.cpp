// Real control groups: a cpuset and a CPU quota made for a child process, which then looks at its machine.
// Needs root and a writable cgroup file system; skipped with the reason otherwise.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/support/control_group.hpp"
#include "topology/cpu_list.hpp"
#include "topology/machine.hpp"
#include "topology/machine_check.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri {
namespace {

using testing::ControlGroup;

// In the child: what it may use, on stderr.
int show_machine(const ControlGroup& group) {
  if (!group.enter()) {
    std::fprintf(stderr, "the group cannot be entered");
    return 1;
  }
  const auto machine = read_machine();
  if (!machine) return 1;
  PipelineSpec spec;
  spec.stages = {{.name = "a", .kind = "a", .cpus = this_thread_cpus()},
                 {.name = "b", .kind = "b", .cpus = {0}}};
  PipelineProblems problems;
  check_placement(spec, *machine, problems);
  std::fprintf(stderr, "CPUs %s, node %s, threads %u, quota %.2f by %s, problems: %zu",
               format_cpu_list(machine->cpus).c_str(), format_cpu_list(machine->nodes.at(0).cpus).c_str(),
               machine->default_threads(), machine->cpu_quota, machine->cpu_quota_origin.c_str(),
               problems.lines.size());
  return 0;
}

TEST(ControlGroups, ACpusetAllowsSomeCpusOnly) {
  const std::vector<std::uint32_t> all = this_thread_cpus();
  if (all.size() < 2 || all.front() != 0) GTEST_SKIP() << "needs two CPUs, and CPU 0";
  const ControlGroup group("cpuset");
  if (!group.reason().empty()) GTEST_SKIP() << group.reason();
  const std::string only = std::to_string(all.back());
  if (!group.set("cpuset.cpus", only) || !group.set("cpuset.mems", "0"))
    GTEST_SKIP() << "the cpuset cannot be set";
  EXPECT_EXIT(std::_Exit(show_machine(group)), ::testing::ExitedWithCode(0),
              "CPUs " + only + ", node " + only + ", threads 1, .* problems: 1");
}

// The tests that read threads' CPUs and pages' nodes back from the kernel, in a cpuset without the first CPU.
TEST(ControlGroups, PinnedStagesStayInTheCpuset) {
  const std::vector<std::uint32_t> all = this_thread_cpus();
  if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
  const ControlGroup group("cpuset");
  if (!group.reason().empty()) GTEST_SKIP() << group.reason();
  if (!group.set("cpuset.cpus", std::to_string(all.back())) || !group.set("cpuset.mems", "0"))
    GTEST_SKIP() << "the cpuset cannot be set";
  const auto run = [&group] {
    if (!group.enter()) return;
    execl(COLIBRI_PLACEMENT_TEST, COLIBRI_PLACEMENT_TEST,
          "--gtest_filter=PlacedThreads.RunOn*:PlacedMemory.*:PlacedReads.*", nullptr);
  };
  EXPECT_EXIT((run(), std::_Exit(2)), ::testing::ExitedWithCode(0), "");
}

TEST(ControlGroups, AQuotaIsNarrowerThanTheAffinity) {
  const std::size_t cpus = this_thread_cpus().size();
  if (cpus < 2) GTEST_SKIP() << "needs two CPUs";
  const ControlGroup group("cpu");
  if (!group.reason().empty()) GTEST_SKIP() << group.reason();
  // Two CPUs on a machine with more, else one.
  const int quota = cpus > 2 ? 2 : 1;
  const std::string microseconds = std::to_string(quota * 100000);
  const bool set = group.version2() ? group.set("cpu.max", microseconds + " 100000")
                                    : group.set("cpu.cfs_period_us", "100000") &&
                                          group.set("cpu.cfs_quota_us", microseconds);
  if (!set) GTEST_SKIP() << "this kernel has no CFS quotas";
  EXPECT_EXIT(std::_Exit(show_machine(group)), ::testing::ExitedWithCode(0),
              "threads " + std::to_string(quota) + ", quota " + std::to_string(quota) +
                  ".00 by cgroup cpu\\.(max|cfs_quota_us) of /.*colibri_test_");
}

}  // namespace
}  // namespace colibri
