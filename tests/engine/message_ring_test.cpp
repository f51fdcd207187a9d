// The ring of an edge: order, bounds and counts, alone and between two threads.
#include "runtime/engine/message_ring.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace colibri {
namespace {

Message numbered(std::uint32_t number) {
  Message message;
  message.first = number;
  message.step_serial = ~std::uint64_t{number};
  return message;
}

constexpr std::uint32_t kShortBeforeTheEnd = 0xffffffffU - 4;

class Ring : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Ring, HoldsAsMuchAsItsCapacityInOrder) {
  const std::uint32_t capacity = GetParam();
  MessageRing ring(capacity, kShortBeforeTheEnd);
  std::uint32_t sent = 0, taken = 0;
  for (int round = 0; round < 5; ++round) {
    while (ring.push(numbered(sent))) {
      ++sent;
      ASSERT_EQ(ring.level(), sent - taken);
    }
    EXPECT_EQ(sent - taken, capacity);
    EXPECT_FALSE(ring.has_room(1));
    Message message;
    while (sent - taken > capacity / 3 && ring.pop(message)) {
      ASSERT_EQ(message.first, taken);
      ++taken;
      EXPECT_TRUE(ring.has_room(1));
      ASSERT_EQ(ring.level(), sent - taken);
      EXPECT_EQ(ring.has_room(sent - taken), 2 * (sent - taken) <= capacity);
    }
    EXPECT_EQ(sent - taken, capacity / 3);
  }
  EXPECT_EQ(ring.high_water(), capacity);
}

TEST_P(Ring, LosesAndSwapsNothingBetweenTwoThreads) {
  const std::uint32_t capacity = GetParam();
  constexpr std::uint32_t kMessages = 30'000;
  MessageRing ring(capacity, kShortBeforeTheEnd);
  std::atomic<bool> watching{true};
  std::uint32_t highest = 0;
  std::thread watcher([&] {
    while (watching.load()) highest = std::max(highest, ring.level());
  });
  std::thread producer([&] {
    for (std::uint32_t i = 0; i < kMessages;) {
      // What has room fits, whatever the consumer does meanwhile.
      if (!ring.has_room(1)) {
        std::this_thread::yield();
        continue;
      }
      ASSERT_TRUE(ring.push(numbered(i)));
      ++i;
    }
  });
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < kMessages;) {
    Message message;
    if (!ring.pop(message)) {
      std::this_thread::yield();
      continue;
    }
    wrong += message.first != i || message.step_serial != ~std::uint64_t{i};
    ++i;
  }
  producer.join();
  watching = false;
  watcher.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(ring.level(), 0U);
  EXPECT_LE(highest, capacity);
  EXPECT_GE(ring.high_water(), 1U);
  EXPECT_LE(ring.high_water(), capacity);
}

INSTANTIATE_TEST_SUITE_P(Capacities, Ring, ::testing::Values(1U, 2U, 3U, 7U, 8U, 100U));

}  // namespace
}  // namespace colibri
