// WaitingRequests against a list that is searched from end to end.
#include "stages/waiting_requests.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace colibri::testing {
namespace {

std::unique_ptr<Sequence> sequence_of(std::uint64_t index, std::uint32_t max_tokens,
                                      Task task = Task::generate) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request.index = index;
  sequence->request.max_tokens = max_tokens;
  sequence->request.task = task;
  sequence->tokens = {1, 2, 3};
  sequence->prompt_size = 3;
  return sequence;
}

TEST(WaitingRequests, InputOrderIsThatOfArrival) {
  WaitingRequests waiting(StartOrder::input);
  for (std::uint64_t i = 0; i < 20; ++i)
    waiting.push(sequence_of(i, static_cast<std::uint32_t>(i * 7919 % 100)));
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(waiting.next().request.index, i);
    EXPECT_EQ(waiting.pop()->request.index, i);
  }
  EXPECT_TRUE(waiting.empty());
}

TEST(WaitingRequests, LongestFirstIsWhatAFullSearchFinds) {
  std::mt19937 random(3);
  WaitingRequests waiting(StartOrder::longest_first);
  struct Item {
    std::uint64_t index;
    std::uint32_t max_tokens;
  };
  std::vector<Item> list;
  std::map<int, std::pair<double, double>> used;  // by the power of two: generated, allowed
  std::uint64_t next_index = 0;
  for (int round = 0; round < 3000; ++round) {
    if (list.empty() || random() % 2 == 0) {
      const auto max_tokens =
          static_cast<std::uint32_t>(1U << random() % 14) + static_cast<std::uint32_t>(random() % 50);
      waiting.push(sequence_of(next_index, max_tokens));
      list.push_back({next_index++, max_tokens});
      continue;
    }
    // The greatest expected length; among equal ones the larger max_tokens, then the earlier one.
    auto expected = [&](const Item& item) {
      const auto& [generated, allowed] = used[std::bit_width(item.max_tokens)];
      return item.max_tokens * (generated + 64) / (allowed + 64);
    };
    auto best = list.begin();
    for (auto item = list.begin(); item != list.end(); ++item) {
      const double a = expected(*item), b = expected(*best);
      const bool equal = std::abs(a - b) < 1e-9 * b;
      if (equal ? item->max_tokens > best->max_tokens : a > b) best = item;
    }
    const std::unique_ptr<Sequence> started = waiting.pop();
    ASSERT_EQ(started->request.index, best->index) << "round " << round;
    list.erase(best);
    // It generates a share of what it may.
    const std::uint32_t generated = started->request.max_tokens / (1 + random() % 4);
    started->tokens.resize(started->prompt_size + generated);
    auto& [all_generated, all_allowed] = used[std::bit_width(started->request.max_tokens)];
    all_generated += generated;
    all_allowed += started->request.max_tokens;
    waiting.finished(*started);
  }
  EXPECT_EQ(waiting.size(), list.size());
}

TEST(WaitingRequests, RequestsThatGenerateNothingComeLast) {
  WaitingRequests waiting(StartOrder::longest_first);
  waiting.push(sequence_of(0, 500, Task::score));
  waiting.push(sequence_of(1, 1));
  waiting.push(sequence_of(2, 400, Task::embed));
  EXPECT_EQ(waiting.pop()->request.index, 1U);
  EXPECT_EQ(waiting.pop()->request.index, 0U);
  EXPECT_EQ(waiting.pop()->request.index, 2U);
}

}  // namespace
}  // namespace colibri::testing
