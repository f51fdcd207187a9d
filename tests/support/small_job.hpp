// A few requests of all tasks over the prompts of a golden, and what must be equal of their results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/golden_model.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri::testing {

// `count` requests: most generate with log-probabilities, some score, some embed.
std::vector<Request> small_requests(const std::string& model, std::size_t count);

// Of each result its tokens, and the bits of all its numbers. A result with an error fails the test.
std::vector<std::vector<std::uint32_t>> result_bits(const JobRun& run);

}  // namespace colibri::testing
