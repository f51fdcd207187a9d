// Real control groups: a cpuset and a CPU quota made for a child process, which then looks at its machine.
// Needs root and a writable cgroup file system; skipped with the reason otherwise.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "topology/cpu_list.hpp"
#include "topology/machine.hpp"
#include "topology/machine_check.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

bool write_value(const fs::path& file, const std::string& value) {
  std::ofstream stream(file);
  stream << value << std::flush;
  return stream.good();
}

std::string read_value(const fs::path& file) {
  std::ifstream stream(file);
  std::string value;
  std::getline(stream, value);
  return value;
}

// Where a controller is mounted, and whether by version 2 (all controllers in one tree).
struct Hierarchy {
  fs::path root;
  bool version2 = false;
};

std::optional<Hierarchy> find_hierarchy(const std::string& controller) {
  std::ifstream mounts("/proc/self/mounts");
  std::optional<Hierarchy> found;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, point, type, options;
    words >> device >> point >> type >> options;
    if (type == "cgroup" && ("," + options + ",").find("," + controller + ",") != std::string::npos) {
      return Hierarchy{point, false};
    }
    const std::string controllers = " " + read_value(fs::path(point) / "cgroup.controllers") + " ";
    if (type == "cgroup2" && controllers.find(" " + controller + " ") != std::string::npos) {
      found = Hierarchy{point, true};
    }
  }
  return found;
}

// A group at the root of the hierarchy, removed at the end.
class ControlGroup {
 public:
  explicit ControlGroup(const std::string& controller) {
    if (geteuid() != 0) {
      reason_ = "needs root";
      return;
    }
    const auto hierarchy = find_hierarchy(controller);
    if (!hierarchy) {
      reason_ = "no cgroup file system with the controller " + controller;
      return;
    }
    version2_ = hierarchy->version2;
    if (version2_) write_value(hierarchy->root / "cgroup.subtree_control", "+" + controller);
    path_ = hierarchy->root / ("colibri_test_" + std::to_string(getpid()));
    std::error_code error;
    if (!fs::create_directory(path_, error)) {
      reason_ = "no control group can be made: " + error.message();
      path_.clear();
    }
  }
  ~ControlGroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  const std::string& reason() const { return reason_; }  // why there is none; empty: there is
  bool version2() const { return version2_; }
  bool set(const std::string& file, const std::string& value) const {
    return write_value(path_ / file, value);
  }
  bool enter() const { return write_value(path_ / "cgroup.procs", std::to_string(getpid())); }

 private:
  fs::path path_;
  bool version2_ = false;
  std::string reason_;
};

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
