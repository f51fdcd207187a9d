#include "stages/write.hpp"

#include <algorithm>
#include <chrono>
#include <colibri/services.hpp>
#include <utility>

namespace colibri {
namespace {

using Clock = std::chrono::steady_clock;

// Syncing takes at most one part in this of the stage's time.
constexpr int kFlushShare = 20;

class Write final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    if (services_->sink == nullptr) {
      return {ErrorCode::invalid_input, "a pipeline with a write stage needs a sink for results: stage '" +
                                            std::string(context.name()) + "'; set Services::sink"};
    }
    context_ = &context;
    results_ = context.counter("results_total");
    failed_ = context.counter("failed_results_total");
    generated_ = context.counter("generated_tokens_total");
    flushes_ = context.counter("flushes_total");
    dropped_ = context.counter("dropped_results_total");
    last_flush_ = Clock::now();
    last_took_ = {};
    unflushed_ = false;
    broken_ = false;
    return {};
  }

  Wait on_message(Message& message, Emitter&) override {
    const std::unique_ptr<Outcome> outcome = message.take_outcome();
    if (!outcome->done) {
      if (!broken_) services_->sink->piece(outcome->result.index, outcome->piece);
      return Wait::none;
    }
    if (broken_) {
      dropped_->add(1);
      return Wait::none;
    }
    const std::size_t generated = outcome->result.tokens.size();
    const bool failed = !outcome->result.error.is_ok();
    if (Status status = services_->sink->result(std::move(outcome->result)); !status) {
      dropped_->add(1);
      give_up(std::move(status));
      return Wait::none;
    }
    results_->add(1);
    generated_->add(generated);
    if (failed) failed_->add(1);
    unflushed_ = true;
    return Wait::input;  // more results of the same step come first, then resume
  }

  Wait resume(Emitter&) override {
    if (unflushed_ && Clock::now() - last_flush_ >= flush_interval()) flush();
    return Wait::none;
  }

  void end_of_input(Emitter&) override {
    if (unflushed_) flush();
  }

 private:
  Clock::duration flush_interval() const {
    const std::chrono::duration<double> wanted(context_->number("flush_seconds"));
    return std::max(std::chrono::duration_cast<Clock::duration>(wanted), last_took_ * kFlushShare);
  }

  void flush() {
    unflushed_ = false;
    const Clock::time_point begin = Clock::now();
    if (Status status = services_->sink->flush(); !status) {
      give_up(std::move(status));
      return;
    }
    flushes_->add(1);
    last_flush_ = Clock::now();
    last_took_ = last_flush_ - begin;
  }

  void give_up(Status status) {
    broken_ = true;
    unflushed_ = false;
    services_->fail_job(std::move(status));
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  Clock::time_point last_flush_;
  Clock::duration last_took_{};
  bool unflushed_ = false;  // results since the last flush
  bool broken_ = false;     // the sink has failed
  Counter* results_ = nullptr;
  Counter* failed_ = nullptr;
  Counter* generated_ = nullptr;
  Counter* flushes_ = nullptr;
  Counter* dropped_ = nullptr;
};

}  // namespace

std::unique_ptr<Stage> create_write() { return std::make_unique<Write>(); }

}  // namespace colibri
