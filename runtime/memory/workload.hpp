// Workload: what a host knows of the job that an engine is opened for, for sizes that the pipeline
// leaves to auto.
#pragma once

#include <cstdint>

namespace colibri {

// A job that scores or embeds and does nothing else: its prompts go through the layers in few steps of many
// rows, each of which reads an expert once. All 0: not known, or another job.
struct Workload {
  std::uint64_t prompts = 0;
  std::uint64_t rows = 0;          // tokens of all prompts together, about
  std::uint64_t longest_rows = 0;  // of one prompt, at most
};

}  // namespace colibri
