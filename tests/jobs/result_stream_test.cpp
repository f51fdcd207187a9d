// Results on pipes and devices.
#include "io/text/result_stream.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace colibri {
namespace {

TEST(ResultStream, HandsOnLines) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // Non-blocking on purpose: a shell may leave our output so.
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const UniqueDescriptor read_end(ends[0]);
  std::string received;
  std::thread reader([&] {
    char bytes[4096];
    for (ssize_t count = 0; (count = ::read(read_end.get(), bytes, sizeof(bytes))) > 0;) {
      received.append(bytes, static_cast<std::size_t>(count));
    }
  });
  std::string expected;
  {
    ResultStream stream(UniqueDescriptor(ends[1]), "pipe");
    for (int i = 0; i < 20'000; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      expected += line;
      ASSERT_TRUE(stream.append(0, line, false).is_ok());
    }
    ASSERT_TRUE(stream.flush().is_ok());
  }
  reader.join();
  EXPECT_EQ(received, expected);
}

TEST(ResultStream, AGoneReaderIsAnErrorNotASignal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  ResultStream stream(UniqueDescriptor(ends[1]), "standard output");
  ASSERT_TRUE(stream.append(0, "x\n", false).is_ok());
  EXPECT_EQ(stream.flush().to_string(),
            "cannot write to 'standard output': Broken pipe; whoever read it has gone");
  EXPECT_FALSE(stream.append(0, "x\n", false).is_ok()) << "a failure stays";
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  sigset_t blocked;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
}

TEST(ResultStream, AFullDeviceSaysSo) {
  auto stream = ResultStream::open("/dev/full");
  ASSERT_TRUE(stream.is_ok()) << stream.status().to_string();
  ASSERT_TRUE((*stream)->append(0, "x\n", false).is_ok());
  EXPECT_EQ((*stream)->flush().to_string(),
            "cannot write to '/dev/full': No space left on device; free space, then go on with --resume");
}

}  // namespace
}  // namespace colibri
