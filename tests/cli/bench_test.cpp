// bench disk: its figures and their form, what it leaves behind (nothing), and stops.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <thread>

#include "runtime/cli/fio_probe.hpp"
#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> bench(const std::string& folder, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench",    "disk", folder,           "--file-size", "8MiB",
                                        "--rounds", "2",    "--milliseconds", "40"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(BenchDisk, MeasuresEverySizeAndDepth) {
  const TemporaryFolder folder;
  const RunResult run =
      run_colibri(bench(folder.path(), {"--sizes", "128KiB,1MiB", "--depths", "1,4", "--no-fio", "--json"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json json = Json::parse(run.out);
  ASSERT_EQ(json["cells"].size(), 4U);
  EXPECT_TRUE(json["fio"].is_null());
  EXPECT_EQ(json["file_bytes"].get<std::uint64_t>(), std::uint64_t{8} << 20);
  std::set<std::pair<int, int>> cells;
  for (const Json& cell : json["cells"]) {
    cells.emplace(cell["read_bytes"].get<int>(), cell["depth"].get<int>());
    ASSERT_EQ(cell["rounds"].size(), 2U);
    const auto [low, high] = std::minmax({cell["rounds"][0].get<double>(), cell["rounds"][1].get<double>()});
    EXPECT_GT(low, 0);
    EXPECT_GE(cell["bytes_per_second"].get<double>(), low);
    EXPECT_LE(cell["bytes_per_second"].get<double>(), high);
  }
  EXPECT_EQ(cells, (std::set<std::pair<int, int>>{{131072, 1}, {131072, 4}, {1048576, 1}, {1048576, 4}}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(BenchDisk, ReadsTheExpertsOfAContainer) {
  const auto files = [] {
    std::map<std::string, std::uint64_t> sizes;
    for (const auto& entry : fs::directory_iterator(demo_model())) {
      sizes[entry.path().filename()] = entry.file_size();
    }
    return sizes;
  };
  const auto before = files();
  const RunResult run = run_colibri(bench(demo_model(), {"--sizes", "1MiB", "--depths", "1", "--no-fio"}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "GB/s  one lane")) << run.out;
  EXPECT_FALSE(contains(run.out, "of fio")) << run.out;
  EXPECT_EQ(files(), before);
}

TEST(BenchDisk, FioStandsBesideItWhereItIsInstalled) {
  if (!cli::fio_version()) GTEST_SKIP() << "fio is not installed";
  const TemporaryFolder folder;
  for (const char* backend : {"auto", "pread"}) {
    const RunResult run = run_colibri(
        bench(folder.path(), {"--sizes", "256KiB", "--depths", "2", "--json", "--backend", backend}));
    ASSERT_EQ(run.status, 0) << run.err;
    const Json json = Json::parse(run.out);
    EXPECT_TRUE(json["fio"].get<std::string>().starts_with("fio-"));
    const Json& cell = json["cells"][0];
    ASSERT_EQ(cell["fio_rounds"].size(), 2U);
    EXPECT_GT(cell["fio_rounds"][0].get<double>(), 0);
    EXPECT_GT(cell["of_fio"].get<double>(), 0);
  }
}

TEST(BenchDisk, AStopLeavesNothingBehind) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const TemporaryFolder folder;
    RunningProgram program({kColibriProgram, "bench", "disk", folder.path(), "--file-size", "64MiB",
                            "--milliseconds", "60000", "--no-fio"},
                           {});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    program.send(signal);
    EXPECT_EQ(program.wait().status, 128 + signal);
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

TEST(BenchDisk, RefusesWhatItCannotMeasure) {
  const TemporaryFolder folder;
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"--sizes", "1000"},
                                                                                     {"--sizes", "65MiB"},
                                                                                     {"--depths", "0"},
                                                                                     {"--depths", "257"},
                                                                                     {"--rounds", "0"},
                                                                                     {"--file-size", "0"}}) {
    EXPECT_EQ(run_colibri(bench(folder.path(), flags)).status, 2) << flags[0] << " " << flags[1];
  }
  const RunResult missing = run_colibri({"bench", "disk", folder.file("none")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.err, "not a folder")) << missing.err;
  const RunResult small = run_colibri(bench(folder.path(), {"--sizes", "16MiB", "--no-fio"}));
  EXPECT_EQ(small.status, 1);
  EXPECT_TRUE(contains(small.err, "smaller than a read")) << small.err;
  const RunResult huge = run_colibri({"bench", "disk", folder.path(), "--file-size", "99999999TiB"});
  EXPECT_NE(huge.status, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(BenchDisk, TheGroupExplainsItself) {
  const RunResult none = run_colibri({"bench"});
  EXPECT_EQ(none.status, 2) << none.err;
  const RunResult unknown = run_colibri({"bench", "dsk", "x"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(contains(unknown.err, "did you mean disk?")) << unknown.err;
  const RunResult flag = run_colibri({"bench", "disk", "x", "--size", "1MiB"});
  EXPECT_EQ(flag.status, 2);
  EXPECT_TRUE(contains(flag.err, "did you mean --sizes?")) << flag.err;
  EXPECT_TRUE(contains(flag.err, "colibri help bench disk")) << flag.err;
  EXPECT_TRUE(contains(run_colibri({"help", "bench"}).out, "disk"));
  EXPECT_TRUE(contains(run_colibri({"help", "bench", "disk"}).out, "--depths"));
  EXPECT_EQ(run_colibri({"help", "bench", "tape"}).status, 2);
}

TEST(FioReport, TheRateIsThatOfReads) {
  const std::string report =
      R"({"fio version": "fio-3.33", "jobs": [{"jobname": "colibri", "read": {"bw_bytes": 1234567, "bw": 1205},)"
      R"( "write": {"bw_bytes": 0}}]})";
  EXPECT_EQ(*cli::rate_of_fio_json(report), 1234567);
  EXPECT_EQ(*cli::rate_of_fio_json("note: both iodepth >= 1 and synchronous I/O engine\n" + report), 1234567);
  for (const char* text : {"", "fio: no such file", "{}", R"({"jobs": []})", R"({"jobs": [{"read": {}}]})",
                           R"({"jobs": [{"read": {"bw_bytes": 0}}]})", "{\"jobs\""}) {
    EXPECT_FALSE(cli::rate_of_fio_json(text)) << text;
  }
}

}  // namespace
}  // namespace colibri::test
