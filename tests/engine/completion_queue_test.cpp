// The queue of what foreign threads post: order, bounds, and several threads at once.
#include "runtime/engine/completion_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace colibri {
namespace {

Message numbered(std::uint32_t producer, std::uint32_t number) {
  Message message;
  message.first = number;
  message.count = producer;
  message.step_serial = ~std::uint64_t{number};
  return message;
}

class Completions : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Completions, HoldsAtLeastItsCapacityInOrder) {
  CompletionQueue queue(GetParam());
  Message message;
  EXPECT_FALSE(queue.pop(message));
  std::uint32_t sent = 0, taken = 0;
  for (int round = 0; round < 7; ++round) {
    while (queue.push(numbered(0, sent))) ++sent;
    ASSERT_GE(sent - taken, GetParam());
    ASSERT_LT(sent - taken, 2 * GetParam() + 2) << "bounded";
    for (std::uint32_t i = 0; i <= GetParam() / 3; ++i) {
      ASSERT_TRUE(queue.pop(message));
      ASSERT_EQ(message.first, taken++);
    }
  }
  while (queue.pop(message)) ASSERT_EQ(message.first, taken++);
  EXPECT_EQ(taken, sent);
}

// Each message comes once and whole, those of one thread in their order.
TEST_P(Completions, LosesAndSwapsNothingBetweenThreads) {
  constexpr std::uint32_t kProducers = 3, kMessages = 20'000;
  CompletionQueue queue(GetParam());
  std::atomic<bool> failed{false};
  std::vector<std::thread> producers;
  for (std::uint32_t producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&, producer] {
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        while (!queue.push(numbered(producer, i)) && !failed.load()) std::this_thread::yield();
      }
    });
  }
  std::uint32_t next[kProducers] = {};
  for (std::uint32_t taken = 0; taken < kProducers * kMessages;) {
    Message message;
    if (!queue.pop(message)) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    if (message.count >= kProducers || message.first != next[message.count] ||
        message.step_serial != ~std::uint64_t{message.first}) {
      ADD_FAILURE() << "message " << message.first << " of thread " << message.count;
      failed.store(true);
      break;
    }
    ++next[message.count];
  }
  for (std::thread& producer : producers) producer.join();
  for (const std::uint32_t each : next) EXPECT_EQ(each, kMessages);
}

INSTANTIATE_TEST_SUITE_P(Capacities, Completions, ::testing::Values(1, 2, 3, 64, 1000));

}  // namespace
}  // namespace colibri
