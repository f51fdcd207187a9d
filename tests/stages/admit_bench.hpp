// admit alone, and the test in place of everything around it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "dense_pipeline.hpp"

namespace colibri::testing {

inline Request prompt(std::uint64_t index, std::uint32_t tokens, std::uint32_t max_tokens = 4,
                      Task task = Task::generate) {
  Request request;
  request.index = index;
  request.id = "r" + std::to_string(index);
  request.task = task;
  request.tokens.assign(tokens, static_cast<std::int32_t>(index % 50));
  request.max_tokens = max_tokens;
  request.max_tokens_given = true;
  return request;
}

// admit alone; the test plays everything behind it.
struct Bench {
  explicit Bench(std::uint32_t max_rows, std::uint32_t wave_rows, std::uint32_t in_flight,
                 std::uint32_t pages, bool finite = true, HarnessOptions options = {})
      : model(small_spec({true}), 1), job(model, max_rows, wave_rows, in_flight, pages), source(finite) {
    job.services.source = &source;
    job.services.stopping = [this] { return stopping; };
    admit = std::make_unique<StageHarness>(kAdmitKind, job.services, options);
  }
  ~Bench() {
    if (admit) outcomes();
  }

  Wait send(Request request) { return admit->send(1, request_message(std::move(request))); }

  // The waves of the next step; null when none was built.
  Step* next_step() {
    Message message;
    Step* step = nullptr;
    for (std::uint32_t index = 0; admit->take(0, message); ++index) {
      EXPECT_EQ(message.wave()->index, index);
      EXPECT_EQ(message.wave()->row_begin, index * job.services.plan.wave_rows);
      step = message.wave()->step;
      if (index + 1 == step->wave_count) {
        EXPECT_EQ(message.wave()->row_end, step->rows);
        break;
      }
    }
    return step;
  }

  // Does what sample would do: a token for each sampled row, the end of scores and embeddings.
  Wait finish(Step& step, bool stop_all = false) {
    for (std::uint32_t row = 0; row < step.rows; ++row) {
      Sequence& sequence = *step.sequences[row];
      if ((step.flags[row] & kRowSample) != 0) {
        sequence.tokens.push_back(1);
        const std::uint32_t generated =
            static_cast<std::uint32_t>(sequence.tokens.size()) - sequence.prompt_size;
        sequence.finished = stop_all || generated == sequence.request.max_tokens;
      } else if ((step.flags[row] & kRowLast) != 0) {
        sequence.finished = true;
      }
    }
    return admit->send(0, {.type = MessageType::step_done, .object = &step});
  }

  std::vector<RequestResult> outcomes() {
    std::vector<RequestResult> results;
    Message message;
    while (admit->take(1, message)) results.push_back(std::unique_ptr<Outcome>(message.outcome())->result);
    return results;
  }

  DenseModel model;
  DenseJob job;
  FiniteSource source;
  bool stopping = false;
  std::unique_ptr<StageHarness> admit;
};

struct RowSummary {
  std::uint64_t index;
  std::uint32_t position;
  std::uint8_t flags;
  bool operator==(const RowSummary&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const RowSummary& row) {
  return out << "(" << row.index << ", " << row.position << ", " << int{row.flags} << ")";
}
inline std::vector<RowSummary> rows_of(const Step& step) {
  std::vector<RowSummary> rows;
  for (std::uint32_t r = 0; r < step.rows; ++r) {
    rows.push_back({step.sequences[r]->request.index, step.positions[r], step.flags[r]});
    EXPECT_EQ(step.tokens[r], step.sequences[r]->tokens[step.positions[r]]);
    EXPECT_TRUE(step.row_status[r].is_ok());
  }
  return rows;
}

}  // namespace colibri::testing
