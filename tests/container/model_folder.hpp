// A converted model in a folder of its own, to be damaged; and the places in its files that tests change.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "io/checkpoint/convert.hpp"
#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "tests/checkpoint/make_checkpoint.hpp"
#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri::test {

class ModelFolder : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLayers = 3;
  static constexpr std::uint32_t kExperts = 5;
  static constexpr std::uint32_t kChunk = 4096;

  // A synthetic checkpoint becomes folder_/name; its experts in parts when folders of drives are named.
  void convert(const std::filesystem::path& checkpoint, const std::string& name,
               const std::vector<std::string>& drives = {}) {
    ConvertOptions options;
    options.chunk_bytes = kChunk;
    for (const std::string& drive : drives) options.stripe.push_back(folder_ / drive);
    const auto report = convert_checkpoint(checkpoint, folder_ / name, options);
    ASSERT_TRUE(report) << report.status().to_string();
  }
  void make_checkpoint() {
    ASSERT_TRUE(
        write_synthetic_checkpoint(folder_ / "checkpoint", {.num_layers = kLayers, .num_experts = kExperts}));
  }
  std::filesystem::path model() const { return folder_ / "model"; }
  // What opening or verifying the model says; empty when it is well.
  std::string open_error() const {
    const auto opened = Container::open(model());
    return opened ? "" : opened.status().to_string();
  }
  std::string verify_error() const {
    const Status status = verify_container(model(), {});
    return status ? "" : status.to_string();
  }

  TemporaryFolder folder_;
};

inline std::uint64_t number_at(const std::string& bytes, std::size_t offset) {
  std::uint64_t value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

inline void put_number(std::string& bytes, std::size_t offset, std::uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

// Makes the header's own checksum right again, so that deeper checks are reached.
inline void seal_header(std::string& bytes) {
  put_number(bytes, 80, 0);
  put_number(bytes, 80, xxh3_64(std::as_bytes(std::span(bytes).first(4096))));
}

}  // namespace colibri::test
