// Pipeline files from a seed: valid ones, of every shape that must give the same results, and broken ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace colibri::testing {

// A valid pipeline: stages under random names and in random order, with or without a predictor, records
// handed over or copied, experts shared out over several stages that read, transfer and compute, taps,
// capacities, workers, placements, steps and memory at random. Fits models whose requests need few rows.
// cpus: those that stages may be placed on; experts: how many the model has in a layer; taps_folder: where
// taps write, empty for none.
std::string random_pipeline(std::uint64_t seed, const std::vector<std::uint32_t>& cpus, std::uint32_t experts,
                            const std::string& taps_folder = {});

// The text with one to four pieces deleted, doubled, swapped or replaced: bytes, tokens and lines.
std::string mutated(const std::string& text, std::uint64_t seed);

}  // namespace colibri::testing
