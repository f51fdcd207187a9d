// COLIBRI_TEST_SCALE: how much is run of tests that can be longer or shorter; 1 unless it is a number above 0.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace colibri::testing {

inline double test_scale() {
  const char* scale = std::getenv("COLIBRI_TEST_SCALE");
  const double value = scale == nullptr ? 1.0 : std::strtod(scale, nullptr);
  return value > 0.0 ? value : 1.0;
}

// `all` at scale 1 and above, a share below, at least `least`.
inline int scaled(int all, int least) {
  return std::max(least, static_cast<int>(all * std::min(test_scale(), 1.0)));
}

}  // namespace colibri::testing
