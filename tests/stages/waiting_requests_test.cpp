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
                                      Task task = Task::generate, std::uint32_t prompt = 3,
                                      bool to_the_end = false) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request.index = index;
  sequence->request.max_tokens = max_tokens;
  sequence->request.task = task;
  sequence->request.ignore_eos = to_the_end;
  sequence->tokens.assign(prompt, 1);
  sequence->prompt_size = prompt;
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
    std::uint32_t max_tokens, prompt;
    bool to_the_end;
  };
  std::vector<Item> list;
  std::map<int, std::pair<double, double>> used;  // by the power of two: generated, allowed
  std::map<std::pair<int, int>, std::pair<double, double>> used_alike;  // and that of the prompt
  std::uint64_t next_index = 0;
  for (int round = 0; round < 3000; ++round) {
    if (list.empty() || random() % 2 == 0) {
      const auto max_tokens =
          static_cast<std::uint32_t>(1U << random() % 14) + static_cast<std::uint32_t>(random() % 50);
      const Item item{next_index++, max_tokens, static_cast<std::uint32_t>(1 + random() % 200),
                      random() % 9 == 0};
      waiting.push(sequence_of(item.index, max_tokens, Task::generate, item.prompt, item.to_the_end));
      list.push_back(item);
      continue;
    }
    // The greatest expected length; among equal ones the larger max_tokens, then the earlier one.
    auto expected = [&](const Item& item) {
      if (item.to_the_end) return 1.0 * item.max_tokens;
      const auto& [generated, allowed] = used[std::bit_width(item.max_tokens)];
      const auto& [alike, of] = used_alike[{std::bit_width(item.max_tokens), std::bit_width(item.prompt)}];
      return item.max_tokens * (alike + 64 * (generated + 64) / (allowed + 64)) / (of + 64);
    };
    auto best = list.begin();
    for (auto item = list.begin(); item != list.end(); ++item) {
      const double a = expected(*item), b = expected(*best);
      const bool equal = std::abs(a - b) < 1e-9 * b;
      if (equal ? item->max_tokens > best->max_tokens : a > b) best = item;
    }
    const std::unique_ptr<Sequence> started = waiting.pop();
    ASSERT_EQ(started->request.index, best->index) << "round " << round;
    const Item item = *best;
    list.erase(best);
    // It generates a share of what it may.
    const std::uint32_t generated = item.to_the_end ? item.max_tokens : item.max_tokens / (1 + random() % 4);
    started->tokens.resize(started->prompt_size + generated);
    if (!item.to_the_end) {
      for (auto* counts : {&used[std::bit_width(item.max_tokens)],
                           &used_alike[{std::bit_width(item.max_tokens), std::bit_width(item.prompt)}]}) {
        counts->first += generated;
        counts->second += item.max_tokens;
      }
    }
    waiting.finished(*started);
  }
  EXPECT_EQ(waiting.size(), list.size());
}

// Among equals the first of the input, whatever its prompt; then those of which like ones did not stop early.
TEST(WaitingRequests, PromptsTellWhoStopsEarly) {
  WaitingRequests waiting(StartOrder::longest_first);
  for (std::uint64_t i = 0; i < 6; ++i)
    waiting.push(sequence_of(i, 100, Task::generate, i % 2 == 0 ? 5 : 50));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::unique_ptr<Sequence> first = waiting.pop();
    EXPECT_EQ(first->request.index, i);
    first->tokens.resize(first->prompt_size + (i == 0 ? 3 : 100));
    waiting.finished(*first);
  }
  for (const std::uint64_t index : {3, 5, 2, 4}) EXPECT_EQ(waiting.pop()->request.index, index);
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
