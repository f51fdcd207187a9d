// colibri check and batch on CPUs and nodes: of this machine, of another one, and of one that stands for
// another.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/demo_model.hpp"
#include "topology/cpu_list.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri::test {
namespace {

const std::string kPipeline = COLIBRI_TEST_DATA "/../configs/batch.yaml";
const std::string kTwoNodes = COLIBRI_TEST_DATA "/topology/machines/two_nodes.xml";

TEST(CheckPlacement, ShowsAnotherMachine) {
  const RunResult result = run_colibri({"check", kPipeline, "--placement", "--machine", kTwoNodes, "--set",
                                        "stages.attend.numa_node=0", "--set", "stages.compute.numa_node=1"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"2 packages, 8 cores, 8 CPUs, 2 NUMA nodes\n", "  node 1: CPUs 4-7, 64.00 GiB, drive nvme1n1\n",
        "\nnode 0     0     0-3   4        attend ", "\nnode 1     1     4-7   4        compute ",
        "numa_node of stage compute: a thread for each of 4 cores\n", "\ndense weights ",
        "\nslots of fetch "}) {
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
  }
}

TEST(CheckPlacement, RefusesWhatTheMachineLacks) {
  const RunResult there = run_colibri({"check", kPipeline, "--machine", kTwoNodes, "--set",
                                       "stages.attend.numa_node=2", "--set", "stages.compute.cpus=6-9"});
  EXPECT_EQ(there.status, 1);
  EXPECT_TRUE(
      contains(there.err, "--set stages.attend.numa_node: no NUMA node 2 may be used on the machine of " +
                              kTwoNodes + "; expected one of 0-1\n"))
      << there.err;
  EXPECT_TRUE(contains(there.err, "--set stages.compute.cpus: CPUs 8-9 may not be used on the machine of " +
                                      kTwoNodes + "; expected some of 0-7\n"))
      << there.err;
  // Without a file, this machine counts; with virtual placement, none.
  const std::string beyond = std::to_string(this_thread_cpus().back() + 1);
  const RunResult here = run_colibri({"check", kPipeline, "--set", "stages.compute.cpus=" + beyond});
  EXPECT_EQ(here.status, 1);
  EXPECT_TRUE(contains(here.err, "CPUs " + beyond + " may not be used on this machine")) << here.err;
  const RunResult stand_in =
      run_colibri({"check", kPipeline, "--set", "stages.compute.cpus=" + beyond, "--virtual-placement"});
  EXPECT_EQ(stand_in.status, 0) << stand_in.err;
}

TEST(CheckPlacement, RefusesABadMachineFileByName) {
  const RunResult result = run_colibri({"check", kPipeline, "--machine", kPipeline});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err, "the machine file cannot be used: " + kPipeline)) << result.err;
}

// A child that may use one CPU sees a machine of one CPU.
TEST(CheckPlacement, ObeysTheAffinityOfTheProcess) {
  const AffinityScope restored;
  const std::uint32_t only = this_thread_cpus().back();
  ASSERT_TRUE(pin_this_thread(std::vector{only}).is_ok());
  const std::string cpu = std::to_string(only);
  const RunResult result =
      run_colibri({"check", kPipeline, "--placement", "--set", "stages.attend.cpus=" + cpu});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.out, ": CPUs " + cpu)) << result.out;
  EXPECT_TRUE(contains(result.out, "default    any   any   1        read")) << result.out;
  const RunResult dump = run_colibri({"check", kPipeline, "--dump"});
  EXPECT_TRUE(
      contains(dump.out, "\nthreads: auto  # default; here 1: CPUs " + cpu + " of the affinity mask\n"))
      << dump.out;
}

TEST(CheckDump, SaysWhatAModelMakesOfAutomaticValues) {
  const RunResult result =
      run_colibri({"check", kPipeline, "--model", demo_model(), "--dump", "--max-rows", "32"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"\n  static: auto  # default; here ", ": dense weights\n", " KV pages of ",
        "\n  max_rows: 32  # command line --max-rows\n", "\n  wave_rows: auto  # default; here 32\n",
        "\n  in_flight: auto  # default; here 1\n", " slots of ", "to: admit.requests, capacity: auto}  # ",
        "; capacity: default; here 64 messages\n"}) {
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
  }
  // Still a file, and of the same values.
  const TemporaryFolder folder;
  write_file(folder.file("again.yaml"), result.out);
  EXPECT_EQ(run_colibri({"check", folder.file("again.yaml")}).status, 0);
}

TEST(CheckMemory, EverythingThatDoesNotAddUpAtOnce) {
  const RunResult result =
      run_colibri({"check", kPipeline, "--model", demo_model(), "--set", "memory.static=4KiB", "--set",
                   "memory.experts=1KiB", "--set", "memory.dynamic=1MiB"});
  EXPECT_EQ(result.status, 1);
  for (const char* path : {"memory.static", "memory.dynamic", "memory.experts"}) {
    EXPECT_TRUE(contains(result.err, std::string("--set ") + path + ": is too small: "))
        << path << result.err;
  }
  // Without a model, only what is given can be added up.
  const RunResult sum = run_colibri({"check", kPipeline, "--machine", kTwoNodes, "--set",
                                     "memory.static=90GiB", "--set", "memory.dynamic=20GiB"});
  EXPECT_EQ(sum.status, 1);
  EXPECT_TRUE(contains(sum.err,
                       "--set memory.static: the memory given (memory.static 90.00 GiB, memory.dynamic 20.00 "
                       "GiB) is more than the machine of " +
                           kTwoNodes + " has; expected at most 102.40 GiB, 80 % of the available memory\n"))
      << sum.err;
}

// The file for two nodes: as it is on a machine that has them, and here with nodes that stand for them.
TEST(NumaConfig, FitsTwoNodesAndRunsHere) {
  const std::string numa = COLIBRI_TEST_DATA "/../configs/numa.yaml";
  const RunResult there = run_colibri({"check", numa, "--placement", "--machine", kTwoNodes});
  ASSERT_EQ(there.status, 0) << there.err;
  for (const char* part : {"\nnode 1     1     4-7   4        fetch_node1, transfer_node1, compute_node1 ",
                           "; near drive nvme1n1\n", "\nslots of fetch_node0 ", "\nKV pages "}) {
    EXPECT_TRUE(contains(there.out, part)) << part << "\n" << there.out;
  }
  const std::string input = jsonl(compared_requests());
  const BatchRun expected(input, {"--in-order"});
  const BatchRun stand_in(input, {"--in-order", "--pipeline", numa, "--virtual-placement"});
  EXPECT_EQ(stand_in.status(), 0) << stand_in.err();
  EXPECT_EQ(stand_in.text(), expected.text());
}

TEST(PlacedBatch, AnswersAreThoseOfTheDefault) {
  const std::string input = jsonl(compared_requests());
  const BatchRun expected(input, {"--in-order"});
  ASSERT_EQ(expected.status(), 0) << expected.err();
  const std::vector<std::uint32_t> cpus = this_thread_cpus();
  const BatchRun split(input, {"--in-order", "--set", "stages.attend.cpus=" + std::to_string(cpus.front()),
                               "--set", "stages.compute.cpus=" + std::to_string(cpus.back())});
  EXPECT_EQ(split.status(), 0) << split.err();
  EXPECT_EQ(split.text(), expected.text());
  const BatchRun nodes(input, {"--in-order", "--virtual-placement", "--set", "stages.attend.numa_node=0",
                               "--set", "stages.compute.numa_node=1"});
  EXPECT_EQ(nodes.status(), 0) << nodes.err();
  EXPECT_EQ(nodes.text(), expected.text());
  EXPECT_TRUE(contains(nodes.err(), "virtual placement: CPUs and NUMA nodes of the pipeline stand for CPUs "))
      << nodes.err();
}

}  // namespace
}  // namespace colibri::test
