// Results files: modes, journals that are torn, damaged or of another job, full disks, order.
#include "io/text/result_file.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/jobs/temporary_folder.hpp"

namespace colibri {
namespace {

JobIdentity test_job() {
  JobIdentity job;
  job.input = {1, 2};
  job.input_lines = 10;
  job.model = "feed";
  job.options = "task=generate seed=0";
  return job;
}

std::string result_line(std::uint64_t index, bool failed = false) {
  return R"({"id":"r)" + std::to_string(index) + R"(","index":)" + std::to_string(index) +
         (failed ? R"(,"error":{"code":"io","message":"x"}})" : "}") + "\n";
}

class ResultFileTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<ResultFile>> open(ResultMode mode, const JobIdentity& job = test_job()) {
    auto file = ResultFile::open(folder.path("out"), mode, job, "");
    if (file) {
      if (Status begun = (*file)->begin(); !begun) return begun;
    }
    return file;
  }
  std::string open_error(ResultMode mode, const JobIdentity& job = test_job()) {
    return open(mode, job).status().to_string();
  }
  // A job that stops after these results, without finishing.
  void leave_unfinished(const std::vector<std::uint64_t>& indexes) {
    auto file = open(ResultMode::force);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    for (const std::uint64_t index : indexes) append(**file, index);
    ASSERT_TRUE((*file)->flush().is_ok());
  }
  // The files of an unfinished job as they are now, to be put back for the next damage.
  struct Saved {
    std::string data;
    std::string journal;
  };
  Saved save_unfinished(const std::vector<std::uint64_t>& indexes) {
    leave_unfinished(indexes);
    return {folder.read("out"), folder.read("out.journal")};
  }
  void put_back(const Saved& saved) {
    folder.write("out", saved.data);
    folder.write("out.journal", saved.journal);
  }
  static void append(ResultFile& file, std::uint64_t index) {
    ASSERT_TRUE(file.append(index, result_line(index, index == 7), index == 7).is_ok());
  }
  std::vector<std::uint64_t> completed_of(const ResultFile& file) {
    std::vector<std::uint64_t> indexes;
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (file.completed().contains(i)) indexes.push_back(i);
    }
    EXPECT_EQ(indexes.size(), file.completed().size());
    return indexes;
  }
  std::size_t header_bytes() { return encode_journal_header(test_job())->size(); }
  void flip(const std::string& name, std::size_t at) {
    std::string bytes = folder.read(name);
    ASSERT_LT(at, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
    folder.write(name, bytes);
  }
  void cut(const std::string& name, std::size_t bytes) {
    std::filesystem::resize_file(folder.path(name), folder.read(name).size() - bytes);
  }

  TemporaryFolder folder;
};

using Indexes = std::vector<std::uint64_t>;

TEST_F(ResultFileTest, FinishLeavesOnlyTheLines) {
  auto file = open(ResultMode::fresh);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  append(**file, 2);
  EXPECT_TRUE(folder.exists("out.journal"));
  append(**file, 0);
  ASSERT_TRUE((*file)->finish(false).is_ok());
  EXPECT_EQ(folder.read("out"), result_line(2) + result_line(0));
  EXPECT_FALSE(folder.exists("out.journal"));
  EXPECT_FALSE(folder.exists("out.journal.new"));
}

TEST_F(ResultFileTest, FinishInOrderSortsByIndex) {
  folder.write("out", "{\"older\": \"results\"}\n");
  ASSERT_EQ(::chmod(folder.path("out").c_str(), 0640), 0);
  auto file = open(ResultMode::fresh);
  for (const std::uint64_t index : {4, 7, 1, 9, 0}) append(**file, index);
  ASSERT_TRUE((*file)->finish(true).is_ok());
  EXPECT_EQ(folder.read("out"),
            result_line(0) + result_line(1) + result_line(4) + result_line(7, true) + result_line(9));
  struct stat info {};
  ASSERT_EQ(::stat(folder.path("out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U);
  EXPECT_FALSE(folder.exists("out.sorted"));
  EXPECT_FALSE(folder.exists("out.journal"));
}

TEST_F(ResultFileTest, AFileOfAnotherKindIsNotReplaced) {
  folder.write("out", "precious notes\n");
  const auto refused = open(ResultMode::fresh);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().to_string().find("not a results file"), std::string::npos);
  EXPECT_EQ(folder.read("out"), "precious notes\n");
  EXPECT_TRUE(open(ResultMode::force).is_ok());
}

TEST_F(ResultFileTest, FinishInOrderOfAnEmptyJob) {
  auto file = open(ResultMode::fresh);
  ASSERT_TRUE((*file)->finish(true).is_ok());
  EXPECT_EQ(folder.read("out"), "");
}

TEST_F(ResultFileTest, InOrderFollowsALink) {
  std::filesystem::create_directory(folder.path("elsewhere"));
  folder.write("elsewhere/real", "");
  std::filesystem::create_symlink(folder.path("elsewhere/real"), folder.path("out"));
  auto file = open(ResultMode::fresh);
  append(**file, 1);
  append(**file, 0);
  ASSERT_TRUE((*file)->finish(true).is_ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("out")));
  EXPECT_EQ(folder.read("elsewhere/real"), result_line(0) + result_line(1));
}

TEST_F(ResultFileTest, FreshOverwritesAFinishedFileButNotAnUnfinishedJob) {
  folder.write("out", "older results\n");
  leave_unfinished({3});
  EXPECT_EQ(open_error(ResultMode::fresh), "an earlier job has not finished: '" + folder.path("out") +
                                               "'; use --resume to go on or --force to start over");
  EXPECT_EQ(folder.read("out"), result_line(3));
  ASSERT_TRUE(open(ResultMode::force).is_ok());
  EXPECT_EQ(folder.read("out"), "");
}

TEST_F(ResultFileTest, ResumeOfNothingStarts) {
  auto file = open(ResultMode::resume);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ((*file)->completed().size(), 0U);
  append(**file, 5);
  ASSERT_TRUE((*file)->finish(false).is_ok());
  EXPECT_EQ(folder.read("out"), result_line(5));
}

TEST_F(ResultFileTest, ResumeGoesOn) {
  leave_unfinished({5, 7, 2});
  auto file = open(ResultMode::resume);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(completed_of(**file), (Indexes{2, 5, 7}));
  EXPECT_EQ((*file)->completed_failed(), 1U);
  EXPECT_EQ((*file)->note(), "");
  append(**file, 0);
  ASSERT_TRUE((*file)->finish(true).is_ok());
  EXPECT_EQ(folder.read("out"), result_line(0) + result_line(2) + result_line(5) + result_line(7, true));
}

TEST_F(ResultFileTest, UnflushedResultsDoNotCount) {
  auto file = open(ResultMode::fresh);
  append(**file, 1);
  ASSERT_TRUE((*file)->flush().is_ok());
  append(**file, 2);
  file = Status(ErrorCode::cancelled, "gone");
  file = open(ResultMode::resume);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(completed_of(**file), (Indexes{1}));
}

TEST_F(ResultFileTest, TornDataIsCutOff) {
  const Saved saved = save_unfinished({5, 4, 2});
  for (std::size_t torn = 1; torn <= result_line(2).size(); ++torn) {
    put_back(saved);
    cut("out", torn);
    auto file = open(ResultMode::resume);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    EXPECT_EQ(completed_of(**file), (Indexes{4, 5}));
    EXPECT_EQ((*file)->note(), "results that do not match their journal are computed again: 1 in '" +
                                   folder.path("out") + "'");
    EXPECT_EQ(folder.read("out"), result_line(5) + result_line(4));
    append(**file, 2);
    ASSERT_TRUE((*file)->finish(false).is_ok());
    EXPECT_EQ(folder.read("out"), result_line(5) + result_line(4) + result_line(2));
  }
}

TEST_F(ResultFileTest, TornJournalCutsTheLinesItDoesNotVouchFor) {
  const Saved saved = save_unfinished({5, 4, 2});
  for (std::size_t torn = 1; torn <= kJournalEntryBytes; ++torn) {
    put_back(saved);
    cut("out.journal", torn);
    auto file = open(ResultMode::resume);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    EXPECT_EQ(completed_of(**file), (Indexes{4, 5}));
    EXPECT_EQ((*file)->note(),
              "bytes after the last whole result were cut off: " + std::to_string(result_line(2).size()) +
                  " in '" + folder.path("out") + "'");
    EXPECT_EQ(folder.read("out"), result_line(5) + result_line(4));
    EXPECT_EQ(folder.read("out.journal").size(), header_bytes() + 2 * kJournalEntryBytes);
  }
}

TEST_F(ResultFileTest, EveryFlippedByteOfTheDataIsFound) {
  const std::string good = result_line(5) + result_line(4) + result_line(2);
  const Saved saved = save_unfinished({5, 4, 2});
  for (std::size_t at = 0; at < good.size(); ++at) {
    put_back(saved);
    flip("out", at);
    auto file = open(ResultMode::resume);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    const std::size_t line = at / result_line(5).size();
    EXPECT_EQ((*file)->completed().size(), line) << "what follows a damaged line is computed again";
    EXPECT_EQ(folder.read("out"), good.substr(0, line * result_line(5).size()));
  }
}

TEST_F(ResultFileTest, EveryFlippedByteOfTheJournalIsFound) {
  const std::size_t header = header_bytes();
  const Saved saved = save_unfinished({5, 4, 2});
  for (std::size_t at = 0; at < header + 3 * kJournalEntryBytes; ++at) {
    put_back(saved);
    flip("out.journal", at);
    auto file = open(ResultMode::resume);
    if (at < header) {
      EXPECT_FALSE(file.is_ok()) << at;
      EXPECT_NE(file.status().to_string().find("use --force to start over"), std::string::npos);
      EXPECT_EQ(folder.read("out"), result_line(5) + result_line(4) + result_line(2))
          << "nothing was touched";
    } else {
      ASSERT_TRUE(file.is_ok()) << file.status().to_string();
      EXPECT_EQ((*file)->completed().size(), (at - header) / kJournalEntryBytes);
    }
  }
}

TEST_F(ResultFileTest, ShortJournalsAreRefused) {
  const Saved saved = save_unfinished({5});
  for (std::size_t bytes = 0; bytes < header_bytes(); bytes += 7) {
    put_back(saved);
    std::filesystem::resize_file(folder.path("out.journal"), bytes);
    EXPECT_FALSE(open(ResultMode::resume).is_ok()) << bytes;
  }
}

TEST_F(ResultFileTest, AnotherJobIsRefusedWithWhatDiffers) {
  leave_unfinished({5});
  const std::string start = "the results are of another job: in '" + folder.path("out.journal") + "' ";
  const std::string end = "; give the same, or use --force to start over";
  JobIdentity job = test_job();
  job.input.low = 9;
  job.input_lines = 12;
  EXPECT_EQ(open_error(ResultMode::resume, job),
            start + "the input has changed (10 lines then, 12 now)" + end);
  job = test_job();
  job.model = "beef";
  EXPECT_EQ(open_error(ResultMode::resume, job), start + "the model was 'feed' and is 'beef'" + end);
  job.options = "task=score seed=0";
  EXPECT_EQ(open_error(ResultMode::resume, job),
            start +
                "the model was 'feed' and is 'beef', and the options were 'task=generate seed=0' and are "
                "'task=score seed=0'" +
                end);
  EXPECT_EQ(folder.read("out"), result_line(5));
}

// Also what a process leaves that dies between removing the journal and putting the sorted file in place.
TEST_F(ResultFileTest, ResumeTakesAFinishedFile) {
  folder.write("out.sorted", "left over");
  folder.write("out", result_line(3) +
                          "{\"id\":\"batch_req_7\",\"custom_id\":\"c\",\"response\":null,\"error\":{}}\n" +
                          "{\"id\":\"batch_req_1\",\"custom_id\":\"d\",\"response\":{},\"error\":null}\n");
  auto file = open(ResultMode::resume);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(completed_of(**file), (Indexes{1, 3, 7}));
  EXPECT_EQ((*file)->completed_failed(), 1U);
  EXPECT_FALSE(folder.exists("out.sorted"));
  append(**file, 0);
  ASSERT_TRUE((*file)->finish(true).is_ok());
  const std::string sorted = folder.read("out");
  EXPECT_TRUE(sorted.starts_with(result_line(0) + "{\"id\":\"batch_req_1\"")) << sorted;
}

TEST_F(ResultFileTest, ResumeCutsATornFinishedFile) {
  folder.write("out", result_line(3) + "{\"id\":\"r1\",\"ind");
  auto file = open(ResultMode::resume);
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  EXPECT_EQ(completed_of(**file), (Indexes{3}));
  EXPECT_EQ(folder.read("out"), result_line(3));
}

TEST_F(ResultFileTest, ResumeLeavesForeignFilesAlone) {
  const std::vector<std::string> foreign = {"hello\n",
                                            "{\"index\":\"3\"}\n",
                                            "{\"id\":\"a\",\"prompt\":\"x\"}\n",
                                            "{\"index\":-1}\n",
                                            result_line(3) + result_line(3),
                                            result_line(3) + "\n" + result_line(4),
                                            result_line(10),
                                            "{\"index\":3}\r\n",
                                            "{\"id\":\"batch_req_1x\",\"custom_id\":\"c\"}\n",
                                            "no newline"};
  for (const std::string& content : foreign) {
    folder.write("out", content);
    const std::string error = open_error(ResultMode::resume);
    EXPECT_TRUE(
        error.starts_with("the file does not hold results of this job: '" + folder.path("out") + "' line "))
        << content << ": " << error;
    EXPECT_EQ(folder.read("out"), content);
    EXPECT_FALSE(folder.exists("out.journal"));
    EXPECT_FALSE(folder.exists("out.journal.new"));
  }
}

TEST_F(ResultFileTest, OneWriterAtATime) {
  auto file = open(ResultMode::fresh);
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ(open_error(ResultMode::resume), "another process is writing these results: '" +
                                                folder.path("out") + "'; wait for it or name another file");
}

// The model may still fail to load: until then nothing that was there is lost, and nothing new is left.
TEST_F(ResultFileTest, OpeningAloneChangesNothing) {
  ASSERT_TRUE(ResultFile::open(folder.path("new"), ResultMode::fresh, test_job(), "").is_ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path("new")));
  for (const ResultMode mode : {ResultMode::fresh, ResultMode::force}) {
    folder.write("old", "{\"of\": \"an earlier job\"}\n");
    ASSERT_TRUE(ResultFile::open(folder.path("old"), mode, test_job(), "").is_ok());
    EXPECT_EQ(folder.read("old"), "{\"of\": \"an earlier job\"}\n");
    EXPECT_FALSE(std::filesystem::exists(folder.path("old.journal")));
  }
}

TEST_F(ResultFileTest, RequestsAreNotOverwritten) {
  const std::string input = folder.write("in", "requests");
  EXPECT_EQ(ResultFile::open(input, ResultMode::force, test_job(), folder.path("./in")).status().to_string(),
            "results would overwrite the requests: '" + input + "' is the input; name another file");
  EXPECT_EQ(folder.read("in"), "requests");
}

TEST_F(ResultFileTest, PathsThatCannotBe) {
  EXPECT_EQ(ResultFile::open(folder.path("none/out"), ResultMode::fresh, test_job(), "").status().to_string(),
            "cannot open '" + folder.path("none/out") + "': No such file or directory; check the path");
  EXPECT_TRUE(ResultFile::fits(folder.path("new")));
  EXPECT_FALSE(ResultFile::fits("/dev/null"));
  EXPECT_FALSE(ResultFile::fits(folder.path("")));
}

// The limit on file sizes stands in for a full disk: a write stops in the middle of a line.
TEST_F(ResultFileTest, AFullDiskLosesNothingThatWasFlushed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const std::size_t line = result_line(1).size();
  for (std::size_t space = 4 * line - 3; space < 4 * line + 3; ++space) {
    {
      auto file = open(ResultMode::force);
      ASSERT_TRUE(file.is_ok());
      for (const std::uint64_t index : {5, 3}) append(**file, index);
      ASSERT_TRUE((*file)->flush().is_ok());
      // Both files may now only grow to `space`, which ends inside the data or inside an entry.
      const std::size_t limit = std::max(space, header_bytes() + 3 * kJournalEntryBytes - line + space % 7);
      rlimit small{limit, before.rlim_max};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
      Status status;
      for (std::uint64_t round = 0; round < 40 && status.is_ok(); ++round) {
        status = (*file)->append(2, result_line(2), false);
        if (status.is_ok()) status = (*file)->flush();
      }
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
      EXPECT_NE(status.to_string().find("File too large; raise the limit"), std::string::npos)
          << status.to_string();
      EXPECT_EQ((*file)->flush().to_string(), status.to_string()) << "a failure stays";
      EXPECT_FALSE((*file)->finish(false).is_ok());
    }
    EXPECT_TRUE(folder.exists("out.journal"));
    JobIdentity job = test_job();
    auto file = open(ResultMode::resume, job);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    EXPECT_TRUE((*file)->completed().contains(5));
    EXPECT_TRUE((*file)->completed().contains(3));
  }
  ::signal(SIGXFSZ, old_handler);
}

TEST_F(ResultFileTest, ManyLargeLinesWithoutFlush) {
  auto file = open(ResultMode::fresh, [] {
    JobIdentity job = test_job();
    job.input_lines = 0;
    return job;
  }());
  std::string expected;
  const std::string padding(200'000, 'p');
  for (int index = 29; index >= 0; --index) {
    const std::string line = "{\"index\":" + std::to_string(index) + ",\"p\":\"" + padding + "\"}\n";
    ASSERT_TRUE((*file)->append(static_cast<std::uint64_t>(index), line, false).is_ok());
    expected = line + expected;
  }
  ASSERT_TRUE((*file)->finish(true).is_ok());
  EXPECT_EQ(folder.read("out"), expected);
}

}  // namespace
}  // namespace colibri
