// Containers of real shape with random weights: for measurements at a size that no test
// checkpoint has, written at the speed of the drive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint/convert.hpp"
#include "io/status.hpp"

namespace colibri {

struct SyntheticShape {
  std::string_view name;  // "olmoe-1b-7b"
  std::string_view help;
};
std::span<const SyntheticShape> synthetic_shapes() noexcept;

struct SyntheticModelOptions {
  std::string shape;
  std::uint32_t layers = 0;      // 0: as many as the model of this shape has
  std::string weights = "int8";  // f32, bf16, int8, int4
  // How uneven experts are used: router rows of the expert with rank r of its layer are scaled by
  // (1 + r)^-skew, so that lower ranks win more often. 0: evenly. At most 4.
  double skew = 0;
  std::uint64_t seed = 1;                                      // the same arguments give the same files
  bool force = false;                                          // replace what lies in the output folder
  std::function<void(std::uint64_t, std::uint64_t)> progress;  // bytes written, bytes in all
  std::function<bool()> cancelled;                             // polled often
};

// The spec that the container will have; shape, layers and weights decide it.
Result<ModelSpec> synthetic_model_spec(const SyntheticModelOptions& options);

// Writes the container; it takes token ids only. The experts of all layers are copies of a few random ones:
// what is measured does not depend on their values, and they need not be drawn. Interrupted, the same call
// goes on.
Result<ConvertReport> write_synthetic_model(const std::filesystem::path& output,
                                            const SyntheticModelOptions& options);

}  // namespace colibri
