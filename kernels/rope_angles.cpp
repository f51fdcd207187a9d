// Rotation tables, see the header.
#include "kernels/rope_angles.hpp"

#include <cmath>

namespace colibri::kernels {

void rope_angles(const double* inverse_frequencies, std::uint32_t half, std::uint32_t position, double factor,
                 float* cosines, float* sines) noexcept {
  for (std::uint32_t i = 0; i < half; ++i) {
    const double angle = position * inverse_frequencies[i];
    cosines[i] = static_cast<float>(std::cos(angle) * factor);
    sines[i] = static_cast<float>(std::sin(angle) * factor);
  }
}

}  // namespace colibri::kernels
