// admit: continuous batching.
//
// Whenever a step is free it is filled with the next token of every running sequence, then
// with prompt chunks of started sequences, then with new sequences in the order of `order`, as
// long as KV pages for all they can ever need are free. A started sequence therefore always
// finishes, unless it is cancelled: then it leaves when it is in no step. A sequence is in one
// step at a time; with two steps in flight the sequences are shared out between them. Steps of prompts
// alone may come back before their results are out (Step::answered_later): until these are, nothing of
// their sequences is looked at that `sample` may change.
#include "stages/admit.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <colibri/services.hpp>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "stages/kv_pages.hpp"
#include "stages/request_check.hpp"
#include "stages/sample.hpp"
#include "stages/sequence_output.hpp"
#include "stages/step_builder.hpp"
#include "stages/waiting_requests.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"done", MessageType::step_done, "steps that are done; and that results which came later are out", true,
     false, true},
    {"requests", MessageType::request, "tokenized requests, in order of arrival"},
};
constexpr PortInfo kOutputs[] = {
    {"waves", MessageType::wave, "the waves of each step, in order", true, false, false, "new"},
    {"outcomes", MessageType::outcome, "answers to requests that need no step"},
};
constexpr ParamInfo kParams[] = {
    {.name = "waiting",
     .type = ParamType::integer,
     .unit = "requests",
     .default_value = "auto",
     .minimum = 1,
     .maximum = 1'000'000,
     .allow_auto = true,
     .while_running = true,
     .help = "requests that may wait to be started before no more are read; auto: rows of all steps in "
             "flight, and with longest_first, which chooses among them, 4096 where these are short"},
    {.name = "order",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "input",
     .choices = "input|longest_first",
     .help =
         "which of the waiting requests starts next: the first of the input, or the one that will generate "
         "longest, by max_tokens and by what finished ones of about the same size have used of it"},
};
constexpr MetricInfo kMetrics[] = {
    {"requests_total", "requests taken"},
    {"refused_total", "requests answered with an error before they started"},
    {"cancelled_total", "requests that were cancelled, before they started or between their steps"},
    {"steps_total", "steps built"},
    {"prompt_rows_total", "rows of prompt tokens put into steps"},
    {"decode_rows_total", "rows of generated tokens put into steps"},
    {"waiting", "requests that wait to be started"},
    {"running", "sequences that have started and are not finished"},
    {"kv_pages", "KV pages promised to running sequences"},
    {"small_steps_total", "steps of less than half of max_rows"},
    {"small_steps_nanoseconds", "time in which only such steps were under way"},
};
enum Input : std::uint8_t { kDone, kRequests };
enum Output : std::uint32_t { kWaves, kOutcomes };

// Of how many requests the longest is looked for, unless their tokens, with all that they may generate, are
// this many already: a few MiB.
constexpr std::uint64_t kLongestOf = 4096;
constexpr std::uint64_t kLongestOfTokens = 1 << 20;

class Admit final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    const PlanInputs& plan = services_->plan;
    finite_ = services_->source != nullptr && services_->source->finite();
    context_ = &context;
    waiting_ = WaitingRequests(context.text("order") == "longest_first" ? StartOrder::longest_first
                                                                        : StartOrder::input);
    pages_.emplace(services_->kv.pages, services_->kv.layers);
    step_pages_.assign(services_->steps.size(), StepKvPages(*pages_, services_->kv));
    free_steps_.reserve(services_->steps.size());
    for (Step& step : services_->steps) free_steps_.push_back(&step);
    members_.resize(services_->steps.size());
    for (auto& members : members_) members.reserve(plan.max_rows);
    unanswered_.reserve(plan.max_rows);
    requests_ = context.counter("requests_total");
    refused_ = context.counter("refused_total");
    cancelled_ = context.counter("cancelled_total");
    steps_ = context.counter("steps_total");
    prompt_rows_ = context.counter("prompt_rows_total");
    decode_rows_ = context.counter("decode_rows_total");
    waiting_level_ = context.counter("waiting");
    running_level_ = context.counter("running");
    pages_level_ = context.counter("kv_pages");
    small_steps_ = context.counter("small_steps_total");
    small_steps_nanoseconds_ = context.counter("small_steps_nanoseconds");
    watch_cancels();
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    if (message.port == kDone) {
      if (message.object != nullptr) {
        finish_step(*message.step(), /*results_later=*/message.count > 0);
      } else {
        results_are_out();
      }
    } else if (message.port == kRequests) {
      take(message.take_sequence(), out);
    } else {
      drop_cancelled();
    }
    const Wait wait = advance(out, /*inbox_empty=*/false);
    // After a message of another port `requests` stays open for one more: what is more urgent than that other
    // port would be too little to listen to.
    return wait == Wait::memory && message.port != kRequests ? Wait::none : wait;
  }

  // Called when the inbox is empty, an output has room again, or another message was handled.
  Wait resume(Emitter& out) override { return advance(out, /*inbox_empty=*/true); }

  void end_of_input(Emitter& out) override {
    input_ended_ = true;
    advance(out, /*inbox_empty=*/true);
  }

  void stop() noexcept override {
    // The source may outlive the completion port that it would notify.
    if (services_->source != nullptr) services_->source->on_cancelled(nullptr);
    answers_.clear();
    running_.clear();
    waiting_.clear();
    members_.clear();
    unanswered_.clear();
    free_steps_.clear();
    step_pages_.clear();
    pages_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::unique_ptr<Sequence> sequence;
    std::uint32_t planned = 0;  // positions computed when the step it is in is done
    bool in_step = false;
    bool unanswered = false;  // `sample` has rows of a step that it was in
    bool held_back =
        false;  // cancelled while these were to come: it is in no step any more, nor ready for one

    std::uint32_t ready_rows() const noexcept {
      return static_cast<std::uint32_t>(sequence->tokens.size()) - sequence->computed;
    }
    // Whether it may need another step after the one that it is in.
    bool goes_on() const noexcept {
      return planned < sequence->prompt_size || planned + 1 < final_size(*sequence);
    }
    bool decodes() const noexcept { return sequence->computed >= sequence->prompt_size; }
  };

  // A new request: answered at once, or put to those that wait.
  void take(std::unique_ptr<Sequence> sequence, Emitter& out) {
    ++taken_;
    if (services_->stopping && services_->stopping()) return;  // not answered: a resumed job runs it
    requests_->add(1);
    sequence->request.tokens = {};  // the prompt is in sequence->tokens: no second copy while it waits
    cancellable_ |= sequence->request.cancelled != nullptr;
    if (sequence->request.is_cancelled()) return answer_cancelled(*sequence);
    if (Status status = check_request(*services_, *sequence); !status) {
      refused_->add(1);
      out.emit(kOutcomes, outcome_message(error_outcome(sequence->request, sequence->prompt_size,
                                                        services_->tokenizer, std::move(status))));
      return;
    }
    if (needs_no_step(*sequence)) {
      auto outcome = std::make_unique<Outcome>();
      outcome->result = empty_result(sequence->request, sequence->prompt_size, services_->tokenizer);
      outcome->result.finish_reason =
          sequence->request.task == Task::generate ? FinishReason::length : FinishReason::stop;
      out.emit(kOutcomes, outcome_message(std::move(outcome)));
      return;
    }
    waiting_rows_ += sequence->prompt_size;
    waiting_tokens_ += final_size(*sequence);
    waiting_.push(std::move(sequence));
    waiting_level_->set(waiting_.size());
  }

  void finish_step(Step& step, bool results_later) {
    std::vector<Running*>& members = members_[step.slot];
    bool any_left = false;
    for (Running* member : members) {
      member->sequence->computed = member->planned;
      member->in_step = false;
      member->unanswered = results_later;
      if (results_later) {
        ready_rows_ += member->ready_rows();
        // `sample` needs no keys.
        if (member->ready_rows() == 0 && !member->sequence->in_one_step)
          pages_->give_back(member->sequence->kv_blocks);
      } else {
        any_left |= !stays(*member);
      }
    }
    if (results_later) {
      assert(unanswered_.empty());
      std::swap(unanswered_, members);
    }
    members.clear();
    step_pages_[step.slot].give_back();
    free_steps_.push_back(&step);
    count_small_time();
    if (step.rows * 2 < services_->plan.max_rows) --small_under_way_;
    if (any_left) forget_finished();
    show_levels();
  }

  // Of the last step that came back before its results. Those of its sequences that are in a step again are
  // looked at when that one is done.
  void results_are_out() {
    bool any_left = false;
    for (Running* member : unanswered_) {
      member->unanswered = false;
      if (member->in_step) continue;
      if (!member->held_back) ready_rows_ -= member->ready_rows();
      any_left |= !stays(*member);
    }
    unanswered_.clear();
    if (any_left) forget_finished();
    show_levels();
  }

  // What becomes of a sequence that is in no step, and of which no result is to come: false when it ends.
  bool stays(Running& running) {
    Sequence& sequence = *running.sequence;
    if (sequence.finished) {
      if (!sequence.in_one_step) pages_->give_back(sequence.kv_blocks);
      waiting_.finished(sequence);
      return false;
    }
    if (cancelled(sequence)) {
      leave(sequence);
      return false;
    }
    ready_rows_ += running.ready_rows();
    return true;
  }

  void show_levels() {
    waiting_level_->set(waiting_.size());
    running_level_->set(running_.size());
    pages_level_->set(pages_->total() - pages_->free());
  }

  void forget_finished() {
    std::erase_if(running_, [](const std::unique_ptr<Running>& running) {
      return !running->in_step && !running->unanswered && running->sequence->finished;
    });
  }

  // Asks the source to post here when it has cancelled something.
  void watch_cancels() {
    if (services_->source == nullptr) return;
    services_->source->on_cancelled([&port = context_->completion_port()] { port.post(Message{}); });
  }

  bool cancelled(const Sequence& sequence) const noexcept {
    return cancellable_ && sequence.request.is_cancelled();
  }

  // Answers all cancelled requests but those in steps, and those of which results are to come: their turn
  // comes when these are done.
  void drop_cancelled() {
    if (ended_) return;
    watch_cancels();                            // before the look: what it does not see causes another
    take_until_ = services_->source->pulled();  // some may be on their way still, or held back
    for (const auto& sequence : waiting_.remove_cancelled()) leave_waiting(*sequence);
    for (const auto& running : running_) {
      if (!running->in_step && !running->unanswered && cancelled(*running->sequence)) leave_ready(*running);
    }
    forget_finished();
    Sequence unread;
    while (services_->source->pull_cancelled(unread.request)) {
      unread.prompt_size = static_cast<std::uint32_t>(unread.request.tokens.size());
      requests_->add(1);
      answer_cancelled(unread);
      unread = {};
    }
    show_levels();
  }

  void leave_waiting(Sequence& sequence) {
    waiting_rows_ -= sequence.prompt_size;
    waiting_tokens_ -= final_size(sequence);
    answer_cancelled(sequence);
  }

  void leave_ready(Running& running) {
    ready_rows_ -= running.ready_rows();
    leave(*running.sequence);
  }

  // It leaves when its results are out.
  void hold_back(Running& running) {
    ready_rows_ -= running.ready_rows();
    running.held_back = true;
  }

  // A started sequence that is in no step.
  void leave(Sequence& sequence) {
    if (!sequence.in_one_step) pages_->give_back(sequence.kv_blocks);
    answer_cancelled(sequence);
  }

  void answer_cancelled(Sequence& sequence) {
    cancelled_->add(1);
    answers_.push_back(cancelled_outcome(sequence, services_->tokenizer));
  }

  // Everything that can be done now, and what the stage then waits for.
  Wait advance(Emitter& out, bool inbox_empty) {
    if (ended_) return Wait::none;
    const std::uint64_t limit = waiting_limit();
    for (;;) {
      if (!send_waves(out) || !send_answers(out)) return Wait::output_space;
      const bool stopping = services_->stopping && services_->stopping();
      const bool idle = free_steps_.size() == services_->steps.size() && unanswered_.empty();
      if (idle && (stopping || (input_ended_ && running_.empty() && waiting_.empty()))) {
        ended_ = true;
        out.end();
        return Wait::none;
      }
      if (stopping || free_steps_.empty() || !may_build(inbox_empty, limit)) break;
      build_step();
    }
    if (waiting_.size() >= limit && taken_ >= take_until_) return Wait::memory;
    // A source that is still producing may make the next step fuller.
    const bool has_work = ready_rows_ + waiting_rows_ > 0;
    return !finite_ && !inbox_empty && has_work && !free_steps_.empty() ? Wait::input : Wait::none;
  }

  // False while a wave has no room.
  bool send_waves(Emitter& out) {
    while (building_ != nullptr && next_wave_ < building_->wave_count) {
      if (out.room(kWaves) == 0) return false;
      Wave& wave = building_->waves[next_wave_++];
      // With its last wave the step is out of our hands: it may be done before we look again.
      if (next_wave_ == building_->wave_count) building_ = nullptr;
      out.emit(kWaves, {.type = MessageType::wave, .object = &wave});
    }
    return true;
  }

  // False while an answer has no room.
  bool send_answers(Emitter& out) {
    while (!answers_.empty()) {
      if (out.room(kOutcomes) == 0) return false;
      out.emit(kOutcomes, outcome_message(std::move(answers_.front())));
      answers_.pop_front();
    }
    return true;
  }

  // Requests that may wait before no more are taken. It may change at any time, so a decision asks once. At
  // least 1, also when it changes between the two questions here.
  std::uint64_t waiting_limit() const {
    if (!context_->is_auto("waiting")) return std::max<std::uint64_t>(1, context_->integer("waiting"));
    const std::uint64_t rows = std::uint64_t{services_->plan.max_rows} * services_->steps.size();
    const bool more = waiting_.order() == StartOrder::longest_first && waiting_tokens_ < kLongestOfTokens;
    return more ? std::max(rows, kLongestOf) : rows;
  }

  // Whether a step should be built now rather than after more requests have come.
  bool may_build(bool inbox_empty, std::uint64_t limit) const {
    const bool can_start =
        !waiting_.empty() && kv_pages_needed(*services_, waiting_.next()) <= pages_->free();
    if (ready_rows_ == 0 && !can_start) return false;
    if (input_ended_ || waiting_.size() >= limit) return true;
    if (!finite_) return inbox_empty;
    // The longest can only be known once all have been seen, or as many as may wait.
    if (waiting_.order() == StartOrder::longest_first) return false;
    // More requests are sure to come, or the end: wait for them unless the step would be more than full, or
    // could not take them. One more row tells that another step will follow.
    return ready_rows_ + waiting_rows_ > services_->plan.max_rows || (!waiting_.empty() && !can_start);
  }

  // Builds none when all that could be in it was cancelled.
  void build_step() {
    Step& step = *free_steps_.back();
    StepBuilder builder(step, services_->plan.max_rows);
    const std::uint64_t share = share_of_rows();
    free_steps_.pop_back();
    std::vector<Running*>& members = members_[step.slot];
    bool any_left = false;
    for (const bool decodes : {true, false}) {
      for (const auto& running : running_) {
        if (builder.room() == 0 || builder.rows() >= share) break;
        if (running->in_step || running->held_back || running->decodes() != decodes) continue;
        if (running->ready_rows() == 0) continue;  // only results are to come
        if (!cancelled(*running->sequence)) {
          add(builder, *running, members);
        } else if (running->unanswered) {
          hold_back(*running);
        } else {
          leave_ready(*running);
          any_left = true;
        }
      }
    }
    if (any_left) forget_finished();
    while (builder.room() > 0 && builder.rows() < share && start_next(builder.room(), step_pages_[step.slot]))
      add(builder, *running_.back(), members);
    if (builder.rows() == 0) {
      free_steps_.push_back(&step);
      return;
    }
    builder.finish(next_serial_++, services_->plan.wave_rows);
    step.followed =
        !input_ended_ || ready_rows_ + waiting_rows_ > 0 ||
        std::any_of(members.begin(), members.end(), [](const Running* m) { return m->goes_on(); });
    // A sequence is looked at after every second step at least: whether it has failed.
    step.answered_later = step.followed && step.rows <= deferrable_rows(services_->plan) &&
                          std::all_of(members.begin(), members.end(), [](const Running* member) {
                            return is_prompt_only(*member->sequence) && !member->unanswered;
                          });
    steps_->add(1);
    show_levels();
    count_small_time();
    if (step.rows * 2 < services_->plan.max_rows) {
      small_steps_->add(1);
      ++small_under_way_;
    }
    building_ = &step;
    next_wave_ = 0;
  }

  // Called whenever a step begins or ends: adds the time since the last call when only small steps were under
  // way in it.
  void count_small_time() {
    const Clock::time_point now = Clock::now();
    const std::size_t under_way = services_->steps.size() - free_steps_.size();
    if (small_under_way_ > 0 && small_under_way_ == under_way_before_) {
      small_steps_nanoseconds_->add(static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_change_).count()));
    }
    under_way_before_ = under_way;
    last_change_ = now;
  }

  // Rows after which a step takes no further sequence: all, or when there is not enough work for every free
  // step, an equal share. While a finite input still comes, steps are filled.
  std::uint64_t share_of_rows() const {
    const std::uint64_t demand = ready_rows_ + waiting_rows_;
    const std::uint64_t max_rows = services_->plan.max_rows;
    const std::uint64_t steps = free_steps_.size();
    if ((finite_ && !input_ended_) || demand >= max_rows * steps) return max_rows;
    return (demand + steps - 1) / steps;
  }

  void add(StepBuilder& builder, Running& running, std::vector<Running*>& members) {
    ready_rows_ -= running.ready_rows();
    const std::uint32_t rows = builder.add(*running.sequence);
    (running.decodes() ? decode_rows_ : prompt_rows_)->add(rows);
    running.planned = running.sequence->computed + rows;
    running.in_step = true;
    members.push_back(&running);
  }

  // Moves the next request to the running ones, if its keys and values have room: in the pages of the step
  // when that has room for all its rows, else in pages of its own.
  bool start_next(std::uint32_t room, StepKvPages& step_pages) {
    while (cancellable_ && !waiting_.empty() && waiting_.next().request.is_cancelled()) {
      leave_waiting(*waiting_.pop());
    }
    if (waiting_.empty()) return false;
    Sequence& next = waiting_.next();
    next.in_one_step = is_prompt_only(next) && next.prompt_size <= room;
    if (next.in_one_step ? !step_pages.take(next.prompt_size, next.kv_blocks)
                         : !pages_->take(kv_blocks_for(final_size(next)), next.kv_blocks)) {
      return false;
    }
    waiting_rows_ -= next.prompt_size;
    waiting_tokens_ -= final_size(next);
    ready_rows_ += next.prompt_size;
    auto running = std::make_unique<Running>();
    running->sequence = waiting_.pop();
    running_.push_back(std::move(running));
    return true;
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  bool finite_ = false;
  bool input_ended_ = false;
  bool ended_ = false;
  bool cancellable_ = false;      // a request has come that may be cancelled: before, nobody looks
  std::uint64_t taken_ = 0;       // requests that have come
  std::uint64_t take_until_ = 0;  // so many must have, however many wait: a cancelled one may be among them
  std::uint64_t next_serial_ = 1;
  std::optional<KvPages> pages_;
  std::vector<StepKvPages> step_pages_;  // [steps] of the sequences that are in one step alone
  WaitingRequests waiting_;
  std::vector<std::unique_ptr<Running>> running_;  // in order of start
  std::vector<std::vector<Running*>> members_;     // [steps] sequences of each step
  std::vector<Running*> unanswered_;               // of a step that came back before its results
  std::vector<Step*> free_steps_;
  std::deque<std::unique_ptr<Outcome>> answers_;  // to cancelled requests, not sent yet
  std::uint64_t waiting_rows_ = 0;                // prompt rows of those that wait
  std::uint64_t waiting_tokens_ = 0;              // with all that they may generate
  std::uint64_t ready_rows_ = 0;                  // rows of running sequences that are in no step
  Step* building_ = nullptr;                      // has waves that are not sent
  std::uint32_t next_wave_ = 0;
  Clock::time_point last_change_;     // when a step began or ended
  std::size_t under_way_before_ = 0;  // steps under way since then
  std::size_t small_under_way_ = 0;   // those of less than half of max_rows
  Counter* small_steps_ = nullptr;
  Counter* small_steps_nanoseconds_ = nullptr;
  Counter* requests_ = nullptr;
  Counter* refused_ = nullptr;
  Counter* cancelled_ = nullptr;
  Counter* steps_ = nullptr;
  Counter* prompt_rows_ = nullptr;
  Counter* decode_rows_ = nullptr;
  Counter* waiting_level_ = nullptr;
  Counter* running_level_ = nullptr;
  Counter* pages_level_ = nullptr;
};

}  // namespace

const StageInfo kAdmitInfo = {
    .kind = "admit",
    .help = "builds steps from waiting requests and running sequences; promises KV pages",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
};

std::unique_ptr<Stage> create_admit() { return std::make_unique<Admit>(); }

// Sequences and pages live on the heap, per request; steps come with the services.
std::uint64_t admit_memory_bytes(const PlanInputs&) { return 0; }

}  // namespace colibri
