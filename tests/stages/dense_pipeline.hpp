// The four dense stages wired as in the built-in pipeline, run to the end on one thread in
// a seeded order. Waves that would go to `route` go back to `attend` when all waves of their step
// have come, as from `combine`.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dense_model.hpp"
#include "stages/admit.hpp"
#include "stages/attend.hpp"
#include "stages/embed.hpp"
#include "stages/sample.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {

inline const StageKind kAdmitKind{&kAdmitInfo, create_admit, admit_memory_bytes};
inline const StageKind kEmbedKind{&kEmbedInfo, create_embed, embed_memory_bytes};
inline const StageKind kAttendKind{&kAttendInfo, create_attend, attend_memory_bytes};
inline const StageKind kSampleKind{&kSampleInfo, create_sample, sample_memory_bytes};

// Keeps traced rows by (request index, name and layer, position).
class KeptTrace final : public TraceRecorder {
 public:
  bool wants_values() const override { return true; }
  bool wants_routing() const override { return false; }
  void values(std::string_view name, std::uint32_t layer, const Sequence& sequence, std::uint32_t position,
              std::span<const float> row) override {
    rows[sequence.request.index][std::string(name) + "." + std::to_string(layer)][position].assign(
        row.begin(), row.end());
  }
  void routing(std::uint64_t, std::uint64_t, const Sequence&, std::uint32_t, std::uint32_t,
               std::span<const std::uint32_t>, std::span<const float>) override {}

  std::map<std::uint64_t, std::map<std::string, std::map<std::uint32_t, std::vector<float>>>> rows;
};

// Gives no requests of its own: tests send them. What it would give that was cancelled before is in `unread`.
class FiniteSource final : public RequestSource {
 public:
  explicit FiniteSource(bool finite) : finite_(finite) {}
  Pull pull(Request&) override { return Pull::end; }
  bool finite() const override { return finite_; }
  void on_ready(std::function<void()>) override {}
  void on_cancelled(std::function<void()> notify) override { tell_cancelled = std::move(notify); }
  bool pull_cancelled(Request& request) override {
    if (unread.empty()) return false;
    request = std::move(unread.front());
    unread.pop_front();
    return true;
  }

  std::uint64_t pulled() const override { return pulls; }

  std::uint64_t pulls = 0;
  std::function<void()> tell_cancelled;
  std::deque<Request> unread;

 private:
  bool finite_;
};

struct PipelineRun {
  std::map<std::uint64_t, RequestResult> results;
  std::vector<std::string> pieces;
  bool ended = false;
};

inline Message request_message(Request request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.tokens;
  sequence->prompt_size = static_cast<std::uint32_t>(request.tokens.size());
  sequence->request = std::move(request);
  return {.type = MessageType::request, .object = sequence.release()};
}

// Runs `requests` to the end. `room` is what every output port has in one call of a stage.
inline PipelineRun run_dense_pipeline(const Services& services, std::vector<Request> requests,
                                      std::uint64_t seed = 1, std::uint32_t room = 1U << 20) {
  const HarnessOptions options{.seed = seed, .room = room};
  StageHarness admit(kAdmitKind, services, options);
  StageHarness embed(kEmbedKind, services, options);
  StageHarness attend(kAttendKind, services, options);
  StageHarness sample(kSampleKind, services, options);
  PipelineRun run;
  auto collect = [&](StageHarness& from) {
    Message message;
    while (from.take(1, message)) {
      const std::unique_ptr<Outcome> outcome(message.outcome());
      if (outcome->done) {
        if (!run.results.emplace(outcome->result.index, outcome->result).second) {
          throw std::logic_error("two results for one request");
        }
      } else {
        run.pieces.push_back(outcome->piece);
      }
    }
  };
  // Moves one message over an edge; false when it is empty or its receiver waits.
  auto move = [](StageHarness& from, std::uint32_t out_port, StageHarness& to, std::uint8_t in_port) {
    Message message;
    if (to.last_wait == Wait::output_space || !from.take(out_port, message)) return false;
    to.send(in_port, message);
    return true;
  };
  std::map<const Step*, std::vector<Message>> routed;  // whose other waves have not come
  std::deque<Message> combined;
  auto route = [&] {
    Message message;
    if (!attend.take(0, message)) return false;
    const Step* step = message.wave()->step;
    std::vector<Message>& waves = routed[step];
    waves.push_back(message);
    if (waves.size() == step->wave_count) {
      combined.insert(combined.end(), waves.begin(), waves.end());
      waves.clear();
    }
    return true;
  };
  std::size_t next_request = 0;
  bool input_ended = false;
  std::mt19937_64 random(seed);
  for (int idle = 0; idle < 1000;) {
    bool moved = false;
    switch (random() % 9) {
      case 0: moved = move(admit, 0, embed, 0); break;
      case 1: moved = move(embed, 0, attend, 1); break;
      case 2: moved = route(); break;
      case 3: moved = move(attend, 1, sample, 0); break;
      case 4:
        moved = move(sample, 0, admit, 0);
        if (moved && admit.last_wait == Wait::memory) admit.resume();
        break;
      case 5:
        if (admit.last_wait == Wait::none || admit.last_wait == Wait::input) {
          if (next_request < requests.size()) {
            admit.send(1, request_message(requests[next_request++]));
            moved = true;
          } else if (!input_ended) {
            admit.end_of_input();
            input_ended = moved = true;
          }
        }
        break;
      case 6:
        if (sample.last_wait == Wait::output_space) sample.resume(), moved = true;
        break;
      case 7:
        if (combined.empty() || attend.last_wait == Wait::output_space) break;
        attend.send(0, combined.front());
        combined.pop_front();
        moved = true;
        break;
      default:
        if (admit.last_wait != Wait::none || (input_ended && admit.emitter.limit < (1U << 20))) {
          admit.resume();
          moved = admit.last_wait == Wait::none;
        }
    }
    collect(admit);
    collect(sample);
    idle = moved ? 0 : idle + 1;
  }
  run.ended = admit.emitter.ended;
  return run;
}

}  // namespace colibri::testing
