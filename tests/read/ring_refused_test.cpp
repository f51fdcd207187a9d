// io_uring refused by the kernel itself: a seccomp filter in a child process answers
// io_uring_setup as containers do, and the backend has to read all the same.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdio>

#include "tests/read/read_fixture.hpp"
#include "tests/support/refuse_system_call.hpp"

namespace colibri {
namespace {

using testing::Buffer;
using testing::Collector;
using testing::PatternFile;

// Exit status of the child: 0 all is well, 2 no filter can be set here, 1 otherwise.
int read_without_io_uring(const PatternFile& file, int error) {
  if (!testing::refuse_system_call(SYS_io_uring_setup, error)) return 2;
  testing::Log log;
  ReadBackendOptions options;
  options.log = log.sink();
  Collector collector;
  const std::filesystem::path paths[] = {file.path()};
  auto backend = open_read_backend(paths, options, collector.callback());
  if (!backend) return 1;
  const Buffer buffer(1 << 20);
  if (!(*backend)->submit(testing::request_for(1, 0, 1 << 20, buffer))) return 1;
  if (!collector.wait(1)[0].status || !buffer.equals(file, 0, 1 << 20)) return 1;
  std::fprintf(stderr, "%s | %s", log.lines().at(0).c_str(), std::string((*backend)->description()).c_str());
  return 0;
}

class KernelRefusesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, KernelRefusesTest, ::testing::Values(EPERM, ENOMEM, ENOSYS));

TEST_P(KernelRefusesTest, ThePoolOfThreadsReads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a forked child";
#endif
  const PatternFile file(1 << 20);
  if (::prctl(PR_GET_SECCOMP) < 0) GTEST_SKIP() << "this kernel has no seccomp";
  EXPECT_EXIT(std::_Exit(read_without_io_uring(file, GetParam())), ::testing::ExitedWithCode(0),
              "io_uring was refused: .* \\| pread, ");
}

}  // namespace
}  // namespace colibri
