// bench/compare.py on results written by hand: its table, its refusals and its exit status.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

struct Machine {
  std::string cpu = "Some CPU";
  std::string build_type = "Release";
};

std::string repetition(const std::string& name, const std::string& nanoseconds,
                       const std::string& unit = "ns") {
  return R"({"name": ")" + name + R"(", "run_name": ")" + name +
         R"(", "run_type": "iteration", "real_time": )" + nanoseconds +
         R"(, "cpu_time": 1.0, "time_unit": ")" + unit + R"("})";
}

std::string aggregate(const std::string& name, const std::string& which, const std::string& nanoseconds) {
  return R"({"name": ")" + name + "_" + which + R"(", "run_name": ")" + name +
         R"(", "run_type": "aggregate", "aggregate_name": ")" + which + R"(", "real_time": )" + nanoseconds +
         R"(, "cpu_time": 1.0, "time_unit": "ns"})";
}

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not installed";
  }

  // A result file with these benchmarks.
  std::string result(const std::string& name, const std::vector<std::string>& benchmarks,
                     const Machine& machine = {}) {
    std::string text = R"({"context": {"date": ")" + name + R"(", "executable": "/)" + name +
                       R"(/kernels_bench", "num_cpus": 2, "mhz_per_cpu": 2000, "cpu": ")" + machine.cpu +
                       R"(", "build_type": ")" + machine.build_type + R"("}, "benchmarks": [)";
    for (const std::string& benchmark : benchmarks) {
      if (&benchmark != &benchmarks.front()) text += ",\n";
      text += benchmark;
    }
    write_file(folder_.file(name), text + "]}");
    return folder_.file(name);
  }

  static RunResult compare(const std::string& before, const std::string& after,
                           const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {"python3", COLIBRI_TEST_DATA "/../bench/compare.py", before, after};
    command.insert(command.end(), options.begin(), options.end());
    return run_program(command);
  }

  TemporaryFolder folder_;
};

TEST_F(Compare, ComparesMediansOfRepetitionsInAnAlignedTable) {
  const std::string before = result(
      "before", {repetition("gemm/16", "100"), repetition("gemm/16", "130"), repetition("gemm/16", "110"),
                 repetition("dot", "2"), repetition("gone", "1"), aggregate("gemm/16", "median", "999")});
  const std::string after = result("after", {repetition("dot", "0.002", "us"), repetition("gemm/16", "55"),
                                             repetition("new", "5"), repetition("gemm/16", "55")});
  const RunResult run = compare(before, after);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "benchmark   before  spread    after  spread  after/before\n"
            "gemm/16     110 ns  27.3 %  55.0 ns   0.0 %         0.500  faster\n"
            "dot        2.00 ns          2.00 ns                 1.000\n"
            "\n"
            "geometric mean of 2: 0.707\n"
            "only before: gone\n"
            "only after: new\n");
}

TEST_F(Compare, SaysByItsStatusWhetherSomethingIsSlowerThanTheThreshold) {
  const std::string before = result("before", {repetition("a", "100"), repetition("b", "100")});
  const std::string after = result("after", {repetition("a", "104"), repetition("b", "108")});
  const RunResult slower = compare(before, after);
  EXPECT_EQ(slower.status, 1);
  EXPECT_NE(slower.out.find("1.080  slower\n"), std::string::npos) << slower.out;
  EXPECT_NE(slower.out.find("1.040\n"), std::string::npos) << slower.out;
  EXPECT_EQ(compare(before, after, {"--threshold", "9"}).status, 0);
  EXPECT_EQ(compare(before, after, {"--threshold", "3", "--filter", "^a$"}).status, 1);
  EXPECT_EQ(compare(before, after, {"--filter", "^a$"}).status, 0);
  EXPECT_EQ(compare(before, after, {"--clock", "cpu_time"}).status, 0);
  EXPECT_EQ(compare(after, before).status, 0);
}

TEST_F(Compare, TakesResultsOfAggregatesAlone) {
  const std::string before = result("before", {aggregate("a", "mean", "1"), aggregate("a", "median", "100")});
  const std::string after = result("after", {aggregate("a", "median", "200"), aggregate("a", "cv", "1")});
  const RunResult run = compare(before, after);
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("2.000  slower"), std::string::npos) << run.out;
}

TEST_F(Compare, RefusesOtherMachinesAndBuildsUnlessForced) {
  const std::vector<std::string> benchmarks = {repetition("a", "100")};
  const std::string before = result("before", benchmarks);
  const std::string machine = result("machine", benchmarks, {.cpu = "Another CPU"});
  const std::string build = result("build", benchmarks, {.build_type = "Debug"});
  const RunResult other = compare(before, machine);
  EXPECT_EQ(other.status, 2);
  EXPECT_EQ(other.out, "");
  EXPECT_NE(other.err.find("cpu: \"Some CPU\" and \"Another CPU\""), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("--force"), std::string::npos) << other.err;
  EXPECT_NE(compare(before, build).err.find("build_type: \"Release\" and \"Debug\""), std::string::npos);
  const RunResult forced = compare(before, build, {"--force"});
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_NE(forced.out.find("different machines or builds"), std::string::npos) << forced.out;
}

TEST_F(Compare, RefusesWhatIsNoResult) {
  const std::string good = result("good", {repetition("a", "100")});
  const std::string other = result("other", {repetition("b", "100")});
  write_file(folder_.file("text"), "not JSON");
  write_file(folder_.file("object"), "{}");
  write_file(folder_.file("nameless"), R"({"benchmarks": [{"run_type": "iteration"}]})");
  for (const char* bad : {"text", "object", "nameless", "missing"}) {
    const RunResult run = compare(good, folder_.file(bad), {"--force"});
    EXPECT_EQ(run.status, 2) << bad;
    EXPECT_NE(run.err.find(folder_.file(bad)), std::string::npos) << run.err;
  }
  EXPECT_EQ(compare(good, other).status, 2);
  EXPECT_EQ(compare(good, good, {"--filter", "["}).status, 2);
  EXPECT_EQ(compare(good, good, {"--threshold", "-1"}).status, 2);
}

}  // namespace
}  // namespace colibri::test
