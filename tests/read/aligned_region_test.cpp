#include "io/read/aligned_region.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "io/read/chunk_checksum.hpp"

namespace colibri {
namespace {

TEST(AlignedRegion, IsAlignedRoundedAndZero) {
  for (const std::uint64_t bytes : {1ULL, 4096ULL, 2ULL << 20, (2ULL << 20) + 1, 9ULL << 20}) {
    auto region = AlignedRegion::create(bytes);
    ASSERT_TRUE(region) << region.status().to_string();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->data()) % AlignedRegion::kAlignment, 0u);
    EXPECT_GE(region->size(), bytes);
    EXPECT_LT(region->size(), bytes + AlignedRegion::kAlignment);
    EXPECT_EQ(region->size() % AlignedRegion::kAlignment, 0u);
    EXPECT_EQ(region->data()[0], std::byte{0});
    std::memset(region->data(), 0x5A, region->size());  // all of it is there
  }
}

TEST(AlignedRegion, RefusesWhatCannotBe) {
  EXPECT_EQ(AlignedRegion::create(0).status().code(), ErrorCode::invalid_input);
  EXPECT_EQ(AlignedRegion::create(UINT64_MAX).status().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(AlignedRegion::create(UINT64_MAX - (3ULL << 20)).status().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(AlignedRegion::create(1ULL << 60).status().code(), ErrorCode::out_of_memory);
}

TEST(AlignedRegion, SlicesStayInside) {
  auto region = AlignedRegion::create(1);
  ASSERT_TRUE(region);
  const std::uint64_t size = region->size();
  auto slice = region->slice(4096, size - 4096);
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->data(), region->data() + 4096);
  EXPECT_EQ(slice->size(), size - 4096);
  EXPECT_TRUE(region->slice(size, 0));
  EXPECT_EQ(region->slice(1, size).status().code(), ErrorCode::invalid_input);
  EXPECT_EQ(region->slice(UINT64_MAX, 2).status().code(), ErrorCode::invalid_input);
}

TEST(AlignedRegion, MovesOnce) {
  auto created = AlignedRegion::create(1);
  ASSERT_TRUE(created);
  std::byte* const data = created->data();
  AlignedRegion first = std::move(created).value();
  AlignedRegion second;
  second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the state is documented
  EXPECT_EQ(first.size(), 0u);
}

// Reference values of the xxHash project for its sanity buffer (tests/sanity_test_vectors.h,
// XSUM_XXH3_testdata, seed 0): the bytes are the top bytes of powers of a prime.
TEST(ChunkChecksum, MatchesTheReferenceVectors) {
  constexpr std::uint64_t kPrime32 = 2654435761U;
  constexpr std::uint64_t kPrime64 = 11400714785074694797ULL;
  std::vector<std::byte> buffer(2243);
  std::uint64_t generator = kPrime32;
  for (std::byte& byte : buffer) {
    byte = static_cast<std::byte>(generator >> 56);
    generator *= kPrime64;
  }
  const auto hash = [&](std::size_t length) { return chunk_checksum(std::span(buffer).first(length)); };
  EXPECT_EQ(hash(0), 0x2D06800538D394C2ULL);
  EXPECT_EQ(hash(1), 0xC44BDFF4074EECDBULL);
  EXPECT_EQ(hash(48), 0x397DA259ECBA1F11ULL);
  EXPECT_EQ(hash(195), 0xCD94217EE362EC3AULL);
  EXPECT_EQ(hash(403), 0xCDEB804D65C6DEA4ULL);
  EXPECT_EQ(hash(2048), 0xDD59E2C3A5F038E0ULL);
}

}  // namespace
}  // namespace colibri
