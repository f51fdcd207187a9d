// Lines from files and pipes: endings, marks, blank and over-long lines.
#include "io/text/jsonl_reader.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "io/text/jsonl_waiter.hpp"
#include "tests/jobs/temporary_folder.hpp"

namespace colibri {
namespace {

struct Seen {
  std::uint64_t index;
  std::string text;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* out) { *out << seen.index << ":" << seen.text; }

std::vector<Seen> read_all(const std::string& content, std::size_t limit = kMaxLineBytes) {
  TemporaryFolder folder;
  const std::string path = folder.write("in.jsonl", content);
  auto reader = JsonlReader::open(path, limit);
  EXPECT_TRUE(reader.is_ok());
  std::vector<Seen> seen;
  JsonlLine line;
  std::uint64_t end_of_last = 0;
  for (;;) {
    auto event = reader->next(line);
    EXPECT_TRUE(event.is_ok()) << event.status().to_string();
    if (!event || *event == JsonlReader::Event::end) break;
    EXPECT_EQ(*event, JsonlReader::Event::line);
    EXPECT_GE(line.offset, end_of_last);
    end_of_last = line.offset + line.bytes;
    if (!line.too_long) {
      EXPECT_EQ(content.substr(line.offset, line.text.size()), line.text);
    }
    EXPECT_EQ(line.terminated, content[line.offset + line.bytes - 1] == '\n');
    seen.push_back({line.index, line.too_long ? "<too long>" : std::string(line.text)});
  }
  EXPECT_EQ(reader->bytes_consumed(), content.size());
  EXPECT_EQ(reader->bytes_total(), content.size());
  return seen;
}

TEST(JsonlReader, Endings) {
  using V = std::vector<Seen>;
  EXPECT_EQ(read_all(""), V{});
  EXPECT_EQ(read_all("\n"), V{});
  EXPECT_EQ(read_all("a"), (V{{0, "a"}}));
  EXPECT_EQ(read_all("a\n"), (V{{0, "a"}}));
  EXPECT_EQ(read_all("a\r\nb\r\n"), (V{{0, "a"}, {1, "b"}}));
  EXPECT_EQ(read_all("a\n\n  \t\n\r\nb"), (V{{0, "a"}, {4, "b"}}));
  EXPECT_EQ(read_all("\xEF\xBB\xBF"
                     "a\nb\n"),
            (V{{0, "a"}, {1, "b"}}));
  EXPECT_EQ(read_all("\xEF\xBB\xBF"), V{});
  EXPECT_EQ(read_all("\xEF\xBB"), (V{{0, "\xEF\xBB"}}));
  EXPECT_EQ(read_all(std::string("a\0b\nc", 5)), (V{{0, std::string("a\0b", 3)}, {1, "c"}}));
}

// A device that never ends a line would be passed over for ever.
TEST(JsonlReader, InputWithoutLinesIsRefused) {
  auto reader = JsonlReader::open("/dev/zero");
  ASSERT_TRUE(reader.is_ok());
  JsonlLine line;
  const auto event = reader->next(line);
  ASSERT_FALSE(event.is_ok());
  EXPECT_EQ(event.status().to_string(),
            "this is no file of lines, none ends within 1 GiB: '/dev/zero', offset 0; name a JSONL file");
}

TEST(JsonlReader, LimitPassesOverLongLines) {
  using V = std::vector<Seen>;
  EXPECT_EQ(read_all("12345\n123456\n1234\n", 5), (V{{0, "12345"}, {1, "<too long>"}, {2, "1234"}}));
  EXPECT_EQ(read_all("12345\r\n123456\r\n", 5), (V{{0, "12345"}, {1, "<too long>"}}));
  EXPECT_EQ(read_all("123456", 5), (V{{0, "<too long>"}}));
  const std::string huge(3 << 20, 'x');
  EXPECT_EQ(read_all("a\n" + huge + "\nb\n", 1000), (V{{0, "a"}, {1, "<too long>"}, {2, "b"}}));
  EXPECT_EQ(read_all("a\n" + huge, 1000), (V{{0, "a"}, {1, "<too long>"}}));
  EXPECT_EQ(read_all(huge + "\n", 3 << 20), (V{{0, huge}}));
}

TEST(JsonlReader, LinesOfEveryLengthAcrossBuffers) {
  std::string content;
  std::vector<Seen> expected;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string text(1 + i * 7 % 1000, static_cast<char>('a' + i % 26));
    content += text + (i % 2 == 0 ? "\n" : "\r\n");
    expected.push_back({i, std::move(text)});
  }
  EXPECT_EQ(read_all(content), expected);
}

TEST(JsonlReader, RefusesWhatIsNoTextFile) {
  TemporaryFolder folder;
  EXPECT_EQ(JsonlReader::open(folder.path("none")).status().to_string(),
            "cannot open '" + folder.path("none") + "': No such file or directory; check the path");
  EXPECT_EQ(JsonlReader::open(folder.path("")).status().to_string(),
            "this is a folder, not a file of lines: '" + folder.path("") + "'; name a file");
  const std::string utf16 = folder.write("utf16", std::string("\xFF\xFE{\0", 4));
  auto reader = JsonlReader::open(utf16);
  JsonlLine line;
  EXPECT_EQ(reader->next(line).status().to_string(),
            "the file is UTF-16, not UTF-8: '" + utf16 + "'; save it as UTF-8");
}

TEST(JsonlReader, PipeWaitsInsteadOfBlocking) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueDescriptor write_end(ends[1]);
  auto reader = JsonlReader::from_descriptor(UniqueDescriptor(ends[0]), "pipe");
  ASSERT_TRUE(reader.is_ok());
  EXPECT_FALSE(reader->is_regular_file());
  JsonlWaiter waiter(reader->descriptor());
  JsonlLine line;
  EXPECT_EQ(*reader->next(line), JsonlReader::Event::wait);

  // The waiter may call before there is input: it then is asked again.
  const auto wait_for_input = [&] {
    for (pollfd ready{reader->descriptor(), POLLIN, 0}; ::poll(&ready, 1, 0) == 0;) {
      std::promise<void> called;
      waiter.when_readable([&] { called.set_value(); });
      called.get_future().wait();
    }
  };
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_EQ(::write(write_end.get(), "one\ntw", 6), 6);
  });
  wait_for_input();
  late.join();
  ASSERT_EQ(*reader->next(line), JsonlReader::Event::line);
  EXPECT_EQ(line.text, "one");
  EXPECT_EQ(*reader->next(line), JsonlReader::Event::wait);
  ASSERT_EQ(::write(write_end.get(), "o", 1), 1);
  write_end.reset();
  wait_for_input();
  ASSERT_EQ(*reader->next(line), JsonlReader::Event::line);
  EXPECT_EQ(line.text, "two");
  EXPECT_EQ(line.index, 1U);
  EXPECT_FALSE(line.terminated);
  EXPECT_EQ(*reader->next(line), JsonlReader::Event::end);
}

class SilentPipe : public ::testing::Test {
 protected:
  SilentPipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    read_end_ = UniqueDescriptor(ends[0]);
    write_end_ = UniqueDescriptor(ends[1]);
  }
  UniqueDescriptor read_end_;
  UniqueDescriptor write_end_;
};

TEST_F(SilentPipe, TheWaiterLosesPatience) {
  std::promise<void> called;
  JsonlWaiter waiter(read_end_.get());
  waiter.when_readable([&] { called.set_value(); });
  called.get_future().wait();
}

TEST_F(SilentPipe, TheWaiterEndsWhileItWaits) {
  std::atomic<int> calls{0};
  {
    JsonlWaiter waiter(read_end_.get());
    waiter.when_readable([&] { ++calls; });
  }
  EXPECT_LE(calls.load(), 1);
}

TEST_F(SilentPipe, AWithdrawnQuestionIsNotAnsweredLater) {
  JsonlWaiter waiter(read_end_.get());
  waiter.withdraw();  // nothing was asked
  for (int round = 0; round < 200; ++round) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    waiter.when_readable([&calls = *alive] { ++calls; });
    if (round == 0) {  // from now on it answers at once
      ASSERT_EQ(::write(write_end_.get(), "x", 1), 1);
    }
    if (round % 3 == 0) std::this_thread::yield();
    waiter.withdraw();
    EXPECT_LE(alive->load(), 1);  // and it may go: address sanitizer sees a late call
  }
}

}  // namespace
}  // namespace colibri
