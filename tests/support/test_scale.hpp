// COLIBRI_TEST_SCALE: how much of tests that can be longer or shorter is run, 1 when it is not set.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace colibri::testing {

inline double test_scale() {
  const char* scale = std::getenv("COLIBRI_TEST_SCALE");
  return scale == nullptr ? 1.0 : std::atof(scale);
}

// `all` at scale 1 and above, a share below, but `least`.
inline int scaled(int all, int least) {
  return std::max(least, static_cast<int>(all * std::min(test_scale(), 1.0)));
}

}  // namespace colibri::testing
