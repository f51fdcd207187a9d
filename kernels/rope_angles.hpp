// Rotation tables of rotary position embedding for one position.
//
// The inverse frequencies [rotary_dim / 2] come with the model's description (plain, yarn,
// llama3, ... are all only different frequencies and a factor); here they become angles.
#pragma once

#include <cstdint>

namespace colibri::kernels {

// cosines[i] = cos(position * inverse_frequencies[i]) * factor, and the sines alike: all in double
// precision, rounded to f32 once at the end, so large positions lose nothing.
void rope_angles(const double* inverse_frequencies, std::uint32_t half, std::uint32_t position, double factor,
                 float* cosines, float* sines) noexcept;

}  // namespace colibri::kernels
