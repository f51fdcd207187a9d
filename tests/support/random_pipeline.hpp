// Pipeline files from a seed: valid ones, of every shape that must give the same results, and broken ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace colibri::testing {

// A valid pipeline: stages under random names and in random order, with or without a predictor, records
// handed over or copied, capacities, workers, placements, steps and memory at random. Fits models whose
// requests need few rows. cpus: those that stages may be placed on.
std::string random_pipeline(std::uint64_t seed, const std::vector<std::uint32_t>& cpus);

// The text with one to four pieces deleted, doubled, swapped or replaced: bytes, tokens and lines.
std::string mutated(const std::string& text, std::uint64_t seed);

}  // namespace colibri::testing
