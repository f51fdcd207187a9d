// The file in the state folder that says how often a model's experts were used.
//
//   usage-<digest of the container>.bin, little-endian:
//    0 magic "CLBUSAGE"   8 u32 version 1   12 u32 MoE layers   16 u32 experts   20 u32 0
//   24 f32 visits [layers], f32 uses [layers, experts], u64 xxh3-64 of all before
//
// It only decides what is kept in memory, never a result. Two programs may write it at a time: the
// last one wins as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/status.hpp"
#include "stages/usage_counts.hpp"

namespace colibri {

class UsageFile {
 public:
  // Touches nothing.
  UsageFile(const std::filesystem::path& state_dir, const std::string& digest, std::uint32_t layers,
            std::uint32_t experts);

  const std::filesystem::path& path() const noexcept { return path_; }
  // Empty when there is no file. Errors: corrupt, invalid_input; what was read is of no use then.
  Result<UsageSnapshot> read() const;
  // Makes the folder if need be.
  Status write(const UsageSnapshot& snapshot) const;

 private:
  std::filesystem::path path_;
  std::uint32_t layers_, experts_;
};

}  // namespace colibri
