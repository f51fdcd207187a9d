// admit: how steps are packed, when sequences start, what is refused, and how it ends.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "admit_bench.hpp"
#include "stages/kv_pages.hpp"

namespace colibri::testing {
namespace {

TEST(DenseAdmit, PacksDecodeRowsThenChunksThenNewSequences) {
  Bench bench(6, 4, 1, 32);
  bench.send(prompt(0, 2));
  bench.send(prompt(1, 8));
  bench.send(prompt(2, 3));
  constexpr std::uint8_t kEnd = kRowSample | kRowLast;
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->wave_count, 2U);
  EXPECT_EQ(rows_of(*step),
            (std::vector<RowSummary>{{0, 0, 0}, {0, 1, kEnd}, {1, 0, 0}, {1, 1, 0}, {1, 2, 0}, {1, 3, 0}}));
  bench.finish(*step);
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(rows_of(*step),
            (std::vector<RowSummary>{
                {0, 2, kRowSample}, {1, 4, 0}, {1, 5, 0}, {1, 6, 0}, {1, 7, kEnd}, {2, 0, 0}}));
  bench.admit->end_of_input();
  bench.finish(*step);
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(rows_of(*step),
            (std::vector<RowSummary>{{0, 3, kRowSample}, {1, 8, kRowSample}, {2, 1, 0}, {2, 2, kEnd}}));
  EXPECT_EQ(bench.admit->count("prompt_rows_total"), 13U);
  EXPECT_EQ(bench.admit->count("decode_rows_total"), 3U);
}

TEST(DenseAdmit, RunsEverythingToTheEndAndGivesAllPagesBack) {
  for (const std::uint32_t in_flight : {1U, 2U}) {
    Bench bench(16, 4, in_flight, 9);
    for (std::uint64_t i = 0; i < 20; ++i) bench.send(prompt(i, 1 + 7 * (i % 5), 3 + i % 3));
    bench.admit->end_of_input();
    std::vector<Step*> flying;
    int steps = 0;
    while (!bench.admit->emitter.ended && steps < 1000) {
      while (Step* step = bench.next_step()) {
        // Rows of a sequence are contiguous and no sequence is in two steps.
        std::set<const Sequence*> seen;
        for (std::uint32_t r = 0; r < step->rows; ++r) {
          const bool continues = r > 0 && step->sequences[r] == step->sequences[r - 1];
          if (continues)
            EXPECT_EQ(step->positions[r], step->positions[r - 1] + 1);
          else
            EXPECT_TRUE(seen.insert(step->sequences[r]).second);
        }
        for (const Step* other : flying) {
          for (std::uint32_t r = 0; r < other->rows; ++r) EXPECT_EQ(seen.count(other->sequences[r]), 0U);
        }
        flying.push_back(step);
      }
      ASSERT_FALSE(flying.empty());
      Step* done = flying.front();
      flying.erase(flying.begin());
      bench.finish(*done);
      ++steps;
      EXPECT_LE(bench.admit->count("kv_pages"), 9U);
    }
    EXPECT_TRUE(bench.admit->emitter.ended);
    EXPECT_EQ(bench.admit->count("kv_pages"), 0U);
    EXPECT_EQ(bench.admit->count("running"), 0U);
    EXPECT_EQ(bench.admit->count("requests_total"), 20U);
  }
}

TEST(DenseAdmit, StartsASequenceOnlyWhenAllItsPagesAreFree) {
  Bench bench(64, 64, 1, 4);
  bench.send(prompt(0, 20, 12));  // 2 pages
  bench.send(prompt(1, 17, 16));  // 3 pages: waits
  bench.send(prompt(2, 1, 1));    // 1 page: waits behind it, in order of arrival
  bench.admit->end_of_input();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 20U);
  EXPECT_EQ(step->sequences[0]->kv_blocks.size(), 2U);
  EXPECT_EQ(bench.admit->count("waiting"), 2U);
  bench.finish(*step, /*stop_all=*/true);
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 18U);
  std::set<std::uint32_t> pages;
  for (const std::uint32_t row : {0U, 17U})
    pages.insert(step->sequences[row]->kv_blocks.begin(), step->sequences[row]->kv_blocks.end());
  EXPECT_EQ(pages, (std::set<std::uint32_t>{0, 1, 2, 3}));
}

TEST(DenseAdmit, RefusesWhatCanNeverRun) {
  Bench bench(64, 64, 1, 8);  // 128 positions of a context of 256
  struct Case {
    Request request;
    ErrorCode code;
    std::string text;
  };
  Request broken = prompt(0, 3);
  broken.error = Status(ErrorCode::unsupported, "no such field");
  Request outside = prompt(0, 3);
  outside.tokens[1] = 61;
  Request stop_without_text = prompt(0, 3);
  stop_without_text.stop = {"x"};
  const std::vector<Case> cases = {
      {broken, ErrorCode::unsupported, "no such field"},
      {prompt(0, 0), ErrorCode::invalid_input, "no tokens"},
      {outside, ErrorCode::invalid_input, "outside the vocabulary: 61"},
      {stop_without_text, ErrorCode::invalid_input, "tokenizer"},
      {prompt(0, 100, 29), ErrorCode::capacity,
       "needs 9 pages of 16 positions, the pool has 8; raise memory.dynamic"},
      {prompt(0, 129, 0, Task::score), ErrorCode::capacity, "9 pages"},
      {prompt(0, 200, 100), ErrorCode::invalid_input, "lower it to 56 or less"},
      {prompt(0, 256, 1), ErrorCode::invalid_input, "no room to generate"},
      {prompt(0, 257, 0, Task::embed), ErrorCode::invalid_input, "257 prompt tokens"},
  };
  for (const Case& c : cases) {
    bench.send(c.request);
    const auto results = bench.outcomes();
    ASSERT_EQ(results.size(), 1U) << c.text;
    EXPECT_EQ(results[0].finish_reason, FinishReason::error);
    EXPECT_EQ(results[0].error.code(), c.code) << c.text;
    EXPECT_NE(results[0].error.to_string().find(c.text), std::string::npos) << results[0].error.to_string();
    EXPECT_EQ(results[0].id, "r0");
  }
  EXPECT_EQ(bench.admit->count("refused_total"), cases.size());
  bench.admit->end_of_input();
  EXPECT_TRUE(bench.admit->emitter.ended) << "nothing was left to do";
}

TEST(DenseAdmit, ShortensOnlyADefaultMaxTokens) {
  Bench bench(256, 64, 1, 16);
  Request request = prompt(0, 250, 128);
  request.max_tokens_given = false;
  bench.send(request);
  bench.admit->end_of_input();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->sequences[0]->request.max_tokens, 6U);
  EXPECT_EQ(step->sequences[0]->kv_blocks.size(), 16U);
}

TEST(DenseAdmit, AnswersWhatNeedsNoStep) {
  Bench bench(16, 16, 1, 8);
  bench.send(prompt(0, 3, 0));
  bench.send(prompt(1, 1, 0, Task::score));
  const auto results = bench.outcomes();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].finish_reason, FinishReason::length);
  EXPECT_EQ(results[0].prompt_tokens, 3U);
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_TRUE(results[1].error.is_ok());
  EXPECT_TRUE(results[1].prompt_logprobs.empty());
  EXPECT_EQ(bench.next_step(), nullptr);
}

TEST(DenseAdmit, FlagsSayWhatEachTaskNeeds) {
  Bench bench(32, 32, 1, 8);
  Request last = prompt(2, 2, 0, Task::embed);
  last.pooling = Pooling::last;
  bench.send(prompt(0, 3, 0, Task::score));
  bench.send(prompt(1, 2, 0, Task::embed));
  bench.send(last);
  bench.admit->end_of_input();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(rows_of(*step), (std::vector<RowSummary>{{0, 0, kRowScore},
                                                     {0, 1, kRowScore},
                                                     {0, 2, kRowLast},
                                                     {1, 0, kRowEmbed},
                                                     {1, 1, kRowEmbed | kRowLast},
                                                     {2, 0, 0},
                                                     {2, 1, kRowEmbed | kRowLast}}));
  EXPECT_EQ(step->sequences[0]->kv_blocks.size(), 1U) << "a score holds pages for its prompt only";
}

TEST(DenseAdmit, FiniteInputFillsAStepBeforeItStarts) {
  Bench bench(6, 6, 1, 32);
  EXPECT_EQ(bench.send(prompt(0, 2)), Wait::none);
  bench.admit->resume();
  EXPECT_EQ(bench.next_step(), nullptr);
  bench.send(prompt(1, 4));
  EXPECT_EQ(bench.next_step(), nullptr) << "full, but whether another step follows is not known";
  bench.send(prompt(2, 1));
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 6U);
  EXPECT_TRUE(step->followed);
  bench.finish(*step);
  EXPECT_EQ(bench.next_step(), nullptr) << "three rows, and more requests are to come";
  bench.send(prompt(3, 7));
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 6U);
}

// Only a step that another one follows may have that one's records read ahead.
TEST(DenseAdmit, TheLastStepIsKnown) {
  for (const auto& [task, generated, followed] :
       {std::tuple{Task::score, 0U, false}, {Task::generate, 1U, false}, {Task::generate, 2U, true}}) {
    Bench bench(6, 6, 1, 32);
    bench.send(prompt(0, 6, generated, task));
    EXPECT_EQ(bench.next_step(), nullptr);
    bench.admit->end_of_input();
    const Step* step = bench.next_step();
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(step->followed, followed) << generated;
  }
  // Part of a prompt.
  Bench bench(6, 6, 1, 32);
  bench.send(prompt(0, 7, 0, Task::score));
  const Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_TRUE(step->followed);
}

TEST(DenseAdmit, FiniteInputDoesNotWaitForWhatCannotStart) {
  Bench bench(20, 20, 1, 4);
  bench.send(prompt(0, 20, 12));
  bench.send(prompt(1, 17, 16));  // 3 pages, 2 are free
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  bench.finish(*step);
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 1U);
}

TEST(DenseAdmit, OpenInputStartsWhenTheInboxIsEmpty) {
  Bench bench(6, 6, 1, 32, /*finite=*/false);
  EXPECT_EQ(bench.send(prompt(0, 2)), Wait::input);
  EXPECT_EQ(bench.next_step(), nullptr);
  EXPECT_EQ(bench.admit->resume(), Wait::none);
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 2U);
  EXPECT_EQ(bench.send(prompt(1, 2)), Wait::none) << "no step is free: nothing to be resumed for";
  EXPECT_EQ(bench.finish(*step), Wait::input);
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 3U);
}

TEST(DenseAdmit, TakesNoMoreRequestsThanMayWait) {
  Bench bench(4, 4, 1, 32, true, {.params = {{"waiting", "3"}}});
  for (std::uint64_t i = 0; i < 6; ++i) {
    // One starts at once since three waiting ones allow no fuller step.
    bench.send(prompt(i, 4, 2));
    if (bench.admit->last_wait == Wait::memory) break;
  }
  EXPECT_EQ(bench.admit->last_wait, Wait::memory);
  EXPECT_EQ(bench.admit->count("waiting"), 3U);
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  bench.finish(*step, true);
  EXPECT_EQ(bench.admit->resume(), Wait::none) << "a waiting one has started";
  EXPECT_EQ(bench.admit->count("waiting"), 2U);
}

TEST(DenseAdmit, HowManyMayWaitMayChangeWhileItRuns) {
  Bench bench(4, 4, 1, 32, true, {.params = {{"waiting", "3"}}});
  std::uint64_t sent = 0;
  const auto send_until_full = [&] {
    while (bench.send(prompt(sent++, 4, 2)) != Wait::memory && sent < 100) {
    }
    return bench.admit->count("waiting");
  };
  EXPECT_EQ(send_until_full(), 3U);
  bench.admit->context.set("waiting", "8");
  EXPECT_EQ(bench.admit->resume(), Wait::none);
  EXPECT_EQ(send_until_full(), 8U);
  bench.admit->context.set("waiting", "2");
  EXPECT_EQ(bench.admit->resume(), Wait::memory) << "those that wait stay, no more are taken";
  EXPECT_EQ(bench.admit->count("waiting"), 8U);
}

// The step that is under way must be heard of, whatever is lowered meanwhile.
TEST(DenseAdmit, FewerThanWaitNowMayWaitWhileAStepIsUnderWay) {
  Bench bench(4, 4, 1, 32, true, {.params = {{"waiting", "8"}}});
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_NE(bench.send(prompt(i, 4, 2)), Wait::memory);
  Step* const step = bench.next_step();
  ASSERT_NE(step, nullptr);
  bench.admit->context.set("waiting", "2");
  EXPECT_NE(bench.admit->send(0, {.type = MessageType::step_done, .object = step}), Wait::memory)
      << "would listen to nothing more urgent than `done`: to nothing";
  EXPECT_EQ(bench.send(prompt(6, 4, 2)), Wait::memory);
}

TEST(DenseAdmit, AFewRequestsThatMayWaitStillRun) {
  Bench bench(64, 8, 1, 32, true, {.params = {{"waiting", "2"}}});
  bench.send(prompt(0, 4, 2));
  EXPECT_EQ(bench.next_step(), nullptr);
  bench.send(prompt(1, 4, 2));
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 8U);
  EXPECT_NE(bench.admit->last_wait, Wait::memory);
}

TEST(DenseAdmit, TwoStepsInFlightShareTheSequences) {
  Bench bench(64, 8, 2, 64);
  for (std::uint64_t i = 0; i < 8; ++i) bench.send(prompt(i, 5, 8));
  bench.admit->end_of_input();
  Step* first = bench.next_step();
  Step* second = bench.next_step();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first->slot, second->slot);
  EXPECT_EQ(first->rows, 20U);
  EXPECT_EQ(second->rows, 20U);
  bench.finish(*first);
  Step* third = bench.next_step();
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->rows, 4U) << "only the sequences that were in the first step";
}

TEST(DenseAdmit, SendsWavesAsOutputsHaveRoom) {
  Bench bench(10, 3, 1, 32, true, {.room = 1});
  bench.send(prompt(0, 11));
  EXPECT_EQ(bench.admit->last_wait, Wait::output_space);
  int resumed = 0;
  while (bench.admit->last_wait == Wait::output_space && resumed < 10) {
    bench.admit->resume();
    ++resumed;
  }
  EXPECT_EQ(resumed, 3);
  EXPECT_EQ(bench.admit->level(0), 4U);
}

TEST(DenseAdmit, StoppingEndsAfterTheStepsInFlight) {
  Bench bench(8, 8, 1, 32);
  bench.send(prompt(0, 9, 50));
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  bench.stopping = true;
  bench.send(prompt(1, 8));
  EXPECT_FALSE(bench.admit->emitter.ended);
  bench.finish(*step);
  EXPECT_TRUE(bench.admit->emitter.ended);
  EXPECT_EQ(bench.next_step(), nullptr);
  EXPECT_TRUE(bench.outcomes().empty()) << "unfinished requests are not answered";
  bench.send(prompt(2, 8));
  EXPECT_EQ(bench.admit->last_wait, Wait::none);
}

// Pages of three layers: what is handed out is the first block of each page.
TEST(DenseKvPages, HandsOutEachPageOnce) {
  KvPages pages(5, 3);
  std::vector<std::uint32_t> a, b;
  EXPECT_TRUE(pages.take(3, a));
  EXPECT_FALSE(pages.take(3, b));
  EXPECT_TRUE(b.empty());
  EXPECT_TRUE(pages.take(2, b));
  EXPECT_EQ(pages.free(), 0U);
  std::set<std::uint32_t> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  EXPECT_EQ(all, (std::set<std::uint32_t>{0, 3, 6, 9, 12}));
  pages.give_back(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pages.free(), 3U);
  EXPECT_EQ(kv_blocks_for(0), 0U);
  EXPECT_EQ(kv_blocks_for(16), 1U);
  EXPECT_EQ(kv_blocks_for(17), 2U);
}

ModelSpec layers_of(const std::vector<bool>& moe) {
  ModelSpec spec;
  for (const bool experts : moe) {
    spec.layers.emplace_back();
    spec.layers.back().moe = experts;
  }
  return spec;
}

TEST(DenseStepKvPages, RunsEndAtLayersWithExperts) {
  const auto described = [](const std::vector<bool>& moe) {
    KvRegion kv;
    describe_kv_layers(layers_of(moe), kv);
    return kv;
  };
  const KvRegion plain = described({true, true, true, true});
  EXPECT_EQ(plain.layers, 4U);
  EXPECT_EQ(plain.run_layers, 1U);
  EXPECT_EQ(plain.layer_in_run, (std::vector<std::uint32_t>{0, 0, 0, 0}));
  const KvRegion mixed = described({false, true, true, false, false, true, false});
  EXPECT_EQ(mixed.run_layers, 3U);
  EXPECT_EQ(mixed.layer_in_run, (std::vector<std::uint32_t>{0, 1, 0, 0, 1, 2, 0}));
  EXPECT_EQ(StepKvPages::runs_per_page(mixed), 2U) << "7 layers hold 2 runs of 3";
}

// Against the definition: no block belongs to two sequences, none lies outside the pages that were taken, and
// no more pages are taken than the blocks fill.
TEST(DenseStepKvPages, SequencesShareTheirStepsPages) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<bool> moe(1 + random() % 9);
    for (std::size_t i = 0; i < moe.size(); ++i) moe[i] = random() % 3 != 0;
    KvRegion kv;
    describe_kv_layers(layers_of(moe), kv);
    const std::uint32_t total = 1 + random() % 40;
    KvPages pages(total, kv.layers);
    std::vector<StepKvPages> steps(2, StepKvPages(pages, kv));
    std::set<std::uint32_t> used[2];
    std::uint32_t runs[2] = {};
    for (int call = 0; call < 30; ++call) {
      const std::size_t step = random() % 2;
      if (random() % 8 == 0) {
        steps[step].give_back();
        used[step].clear();
        runs[step] = 0;
      }
      const std::uint32_t positions = 1 + random() % 100;
      const std::uint32_t free = pages.free();
      std::vector<std::uint32_t> blocks;
      const bool taken = steps[step].take(positions, blocks);
      const std::uint32_t wanted = taken ? runs[step] + (positions + 15) / 16 : runs[step];
      const auto pages_for = [&](std::uint32_t count) {
        const std::uint32_t in_page = kv.layers / kv.run_layers;
        return (count + in_page - 1) / in_page;
      };
      EXPECT_EQ(free - pages.free(), pages_for(wanted) - pages_for(runs[step]));
      if (!taken) {
        EXPECT_TRUE(blocks.empty());
        EXPECT_GT(pages_for(runs[step] + (positions + 15) / 16) - pages_for(runs[step]), free);
      }
      runs[step] = wanted;
      EXPECT_EQ(blocks.size(), taken ? (positions + 15) / 16 : 0U);
      for (const std::uint32_t first : blocks) {
        EXPECT_LE(first % kv.layers + kv.run_layers, kv.layers) << "a run lies in one page";
        for (std::uint32_t block = first; block < first + kv.run_layers; ++block) {
          EXPECT_LT(block, total * kv.layers);
          EXPECT_TRUE(used[step].insert(block).second);
          EXPECT_FALSE(used[1 - step].contains(block));
        }
      }
    }
    steps[0].give_back();
    steps[1].give_back();
    EXPECT_EQ(pages.free(), total);
  }
}

}  // namespace
}  // namespace colibri::testing
