// A job whose experts take four times the memory that it may use, page cache included: it streams, and nobody
// kills it. Needs root and control groups; skipped with the reason otherwise. How fast it was is printed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tests/cli/demo_model.hpp"
#include "tests/support/control_group.hpp"
#include "tests/support/refuse_system_call.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri::test {
namespace {

using colibri::testing::ControlGroup;

constexpr std::uint64_t kMiB = 1ULL << 20;
// Steps small enough for the experts to be most of what is planned; all that is auto is left to the program.
const std::vector<std::string> kSettings = {"--max-rows", "64", "--set", "memory.dynamic=64MiB"};

// The number after a word at the beginning of a line.
std::uint64_t value_of(const std::string& text, const std::string& word) {
  const std::size_t at = ("\n" + text).find("\n" + word + " ");
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + word.size() + 1));
}

// Of a file, in the page cache.
std::uint64_t cached_bytes(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::uint64_t length = std::filesystem::file_size(path);
  void* at = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((length + page - 1) / page);
  EXPECT_TRUE(at != MAP_FAILED && ::mincore(at, length, there.data()) == 0);
  ::munmap(at, length);
  return page * static_cast<std::uint64_t>(std::count_if(there.begin(), there.end(),
                                                         [](unsigned char one) { return (one & 1) != 0; }));
}

void drop_cached(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

class MemoryLimit : public ::testing::TestWithParam<bool> {};

TEST_P(MemoryLimit, AJobStreamsFourTimesWhatItMayKeep) {
  const bool direct = GetParam();
  const ControlGroup group("memory");
  if (!group.reason().empty()) GTEST_SKIP() << group.reason();
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  const RunResult made = run_colibri({"synth", "--shape", "olmoe-1b-7b", "--layers",
                                      testing::test_scale() < 1 ? "1" : "2", "--weights", "int8", "-q", model});
  ASSERT_EQ(made.status, 0) << made.err;

  // What the program needs with a quarter of the experts, of which auto takes four fifths of the limit.
  std::vector<std::string> plan = {"plan", model, "--experts-memory", "25%", "--json"};
  plan.insert(plan.end(), kSettings.begin(), kSettings.end());
  const Json planned = Json::parse(run_colibri(plan).out);
  const auto slots = planned.at("expert_slots").get<std::uint64_t>();
  const std::uint64_t experts = 4 * slots * planned.at("slot_bytes").get<std::uint64_t>();
  const std::uint64_t limit = planned.at("planned_bytes").get<std::uint64_t>() / 4 * 5;
  const bool limited =
      group.set(group.version2() ? "memory.max" : "memory.limit_in_bytes", std::to_string(limit));
  if (!limited) GTEST_SKIP() << "the group's memory cannot be limited";

  std::mt19937 random(1);
  std::vector<Json> requests;
  for (int i = 0; i < 16; ++i) {
    std::vector<std::uint32_t> tokens(24);
    for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(random() % 50'000);
    requests.push_back(
        {{"id", std::to_string(i)}, {"tokens", tokens}, {"max_tokens", 8}, {"ignore_eos", true}});
  }
  write_file(folder.file("requests.jsonl"), jsonl(requests));
  std::vector<std::string> words = {kColibriProgram,
                                    "batch",
                                    model,
                                    folder.file("requests.jsonl"),
                                    "-o",
                                    folder.file("results.jsonl"),
                                    "--profile",
                                    folder.file("run.json")};
  words.insert(words.end(), kSettings.begin(), kSettings.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder.file("log");
  drop_cached(model + "/experts.bin");  // what was written a moment ago
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(out, STDERR_FILENO);
    if (!group.enter() || (!direct && !testing::refuse_direct_files())) ::_exit(99);
    ::execv(kColibriProgram, arguments.data());
    ::_exit(98);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const std::string err = read_file(log);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status) << ": " << err;
  ASSERT_EQ(WEXITSTATUS(status), 0) << err;
  EXPECT_EQ(err.find("reading buffered") != std::string::npos, !direct) << err;

  const std::string events = group.value(group.version2() ? "memory.events" : "memory.oom_control");
  EXPECT_EQ(value_of(events, "oom_kill"), 0U) << events;
  // Some records at the end of the job may still lie there: those of the last reads, and what was read ahead.
  EXPECT_LE(cached_bytes(model + "/experts.bin"), experts / 8)
      << "the page cache holds experts a second time";

  const Json run = Json::parse(read_file(folder.file("run.json")));
  EXPECT_EQ(run.at("reads_per_visit"), 1.0);
  EXPECT_GT(run.at("bytes_read").get<std::uint64_t>(), 3 * experts);
  const auto planned_bytes = run.at("planned_bytes").get<std::uint64_t>();
  EXPECT_LE(planned_bytes, limit);
  EXPECT_LE(run.at("peak_rss_bytes").get<std::uint64_t>(), planned_bytes / 10 * 11 + 16 * kMiB);
  std::printf("%s: experts of %llu MiB under a limit of %llu MiB at %.2f GB/s\n",
              direct ? "O_DIRECT" : "buffered", static_cast<unsigned long long>(experts / kMiB),
              static_cast<unsigned long long>(limit / kMiB),
              run.at("bytes_read").get<double>() / run.at("wall_seconds").get<double>() * 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Reads, MemoryLimit, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "direct" : "buffered";
                         });

}  // namespace
}  // namespace colibri::test
