// main of tests that run engines: the program, not the library, allows the threads.
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

int main(int argc, char** argv) {
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 9);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
