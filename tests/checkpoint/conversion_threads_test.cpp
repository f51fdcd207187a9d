// Conversion on several threads: the same bytes as on one.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "io/checkpoint/convert.hpp"
#include "tests/checkpoint/make_checkpoint.hpp"
#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

using test::TemporaryFolder;

TEST(Conversion, ThreadsChangeNothing) {
  const TemporaryFolder folder;
  // Matrices of several blocks of panels, and of panels that are shared out unevenly.
  ASSERT_TRUE(test::write_synthetic_checkpoint(folder / "checkpoint", {.hidden_size = 1024,
                                                                       .intermediate_size = 560,
                                                                       .num_layers = 1,
                                                                       .num_experts = 2,
                                                                       .vocab_size = 1200}));
  for (const char* weights : {"int4", "int8", "bf16"}) {
    std::map<std::string, std::string> files[2];
    for (const std::uint32_t threads : {1U, 5U}) {
      ConvertOptions options;
      options.weights = weights;
      options.threads = threads;
      options.force = true;
      ASSERT_TRUE(convert_checkpoint(folder / "checkpoint", folder / "model", options));
      for (const char* name : {"model.bin", "experts.bin"}) {
        files[threads == 1 ? 0 : 1][name] = test::read_file(folder / "model" / name);
      }
    }
    EXPECT_TRUE(files[0] == files[1]) << weights;  // megabytes: not to be printed
  }
}

}  // namespace
}  // namespace colibri
