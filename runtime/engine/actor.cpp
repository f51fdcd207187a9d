#include "runtime/engine/actor.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

namespace colibri {
namespace {

// Reading the clock costs as much as the rest of a hop: hops are timed in one run out of these, a prime
// number so that it meets every phase of what repeats.
constexpr std::uint32_t kRunsPerTiming = 17;
// Short calls in a row after which the next one is taken to be short, too.
constexpr std::uint32_t kShortCalls = 16;

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// What of a message belongs to its receiver; null when nothing does.
const void* owned_by_receiver(const Message& message) noexcept {
  switch (message.type) {
    case MessageType::request:
    case MessageType::outcome: return message.object;
    case MessageType::expert: return message.error;
    default: return nullptr;
  }
}

// A message that nobody will see any more: what belongs to its receiver goes with it.
void discard(Message message) {
  if (message.type == MessageType::request) message.take_sequence();
  if (message.type == MessageType::outcome) message.take_outcome();
  if (message.type == MessageType::expert) message.take_error();
}

}  // namespace

Actor::Actor(std::string name, const StageInfo& info, std::unique_ptr<Stage> stage, Executor& executor,
             std::uint32_t completion_capacity)
    : name_(std::move(name)),
      info_(info),
      stage_(std::move(stage)),
      executor_(executor),
      most_unannounced_ns_(executor.most_unannounced_ns()),
      inputs_(info.inputs.size()),
      passing_(info.inputs.size()),
      next_edge_(info.inputs.size()),
      outputs_(info.outputs.size()),
      completions_(completion_capacity) {}

void Actor::wake(bool foreign) {
  if (claim(foreign)) executor_.schedule(*this, foreign);
}

// Makes the actor due. True when the caller must now see to it that run is called.
bool Actor::claim(bool foreign) {
  // A look first: the line need not travel for each message to an actor that is due. It is enough where the
  // count of a ring was written before, in one total order with this. (The queue of foreign threads has none:
  // what they write is ordered by the exchange.)
  if (!foreign && (state_.load(std::memory_order_seq_cst) & kDue) != 0) return false;
  // Of an actor that runs, the run itself finds at its end that it is due again.
  if (state_.fetch_or(kDue, std::memory_order_seq_cst) != 0) return false;
  return !lose_wakes_ || !lose_wakes_();
}

Actor* Actor::run() {
  // From here on it is not due: what is sent from now on is seen by this run or makes it due again. The
  // exchange orders what waking threads, and the run before, did before this run. (The executor's own
  // ordering is invisible to a thread sanitizer: for it the load says that the actor was made before.)
  static_cast<void>(state_.load(std::memory_order_acquire));
  std::uint8_t due = kDue;
  if (!state_.compare_exchange_strong(due, kRunning, std::memory_order_seq_cst)) {
    state_.fetch_or(0, std::memory_order_release);  // for after_last_run: this look was before
    return nullptr;
  }
  // Woken by a thread of its own before all stages have started: it is woken again when they have.
  Actor* next = nullptr;
  if (phase_ == nullptr || phase_->load(std::memory_order_seq_cst) != RunPhase::starting) next = take_turn();
  const bool last = gave_way();  // from here on others may run it
  std::uint8_t running = kRunning;
  if (!state_.compare_exchange_strong(running, 0, std::memory_order_seq_cst)) {
    // Nobody has scheduled it. An exchange, which hands on what those who made it due have written.
    state_.exchange(kDue, std::memory_order_seq_cst);
    if (last) {
      if (!lose_wakes_ || !lose_wakes_()) executor_.schedule_last(*this);
    } else {
      executor_.schedule(*this, false);
    }
#if defined(__SANITIZE_THREAD__)
    state_.fetch_or(0, std::memory_order_release);  // for after_last_run: oneTBB's order is invisible to it
#endif
  }
  return next;
}

// The calls of one run. Returns the actor that is to be run next on this thread, or null.
Actor* Actor::take_turn() {
  const std::uint32_t turn = turn_.load(std::memory_order_acquire) + 1;
  turn_.store(turn, std::memory_order_relaxed);
  const std::uint64_t begin = now_ns();
  clock_ns_ = begin;
  if (accounted_ != Wait::none) {
    metrics_.blocked_ns[static_cast<std::size_t>(accounted_)].add(begin - accounted_since_);
    accounted_ = Wait::none;
  }
  hops_timed_ = runs_++ % kRunsPerTiming == 0;
  outside_hops_ns_ = 0;
  const int calls_per_run = executor_.calls_per_run();
  int calls = 0;
  bool gives_way = false;
  while (!ended() && !aborted() && calls < calls_per_run && !gives_way && step()) {
    ++calls;
    gives_way = info_.gives_way && blocked_ == Wait::output_space;
  }
  gave_way_.store(gives_way, std::memory_order_relaxed);
  if (aborted() && !ended()) leave();
  if (ended()) discard_inputs();
  if (!ended() && (gives_way || calls == calls_per_run)) wake(false);
  Actor* const next = announce(true);
  if (hops_timed_) {
    clock_ns_ = now_ns();
    metrics_.hop_ns.add(kRunsPerTiming * hops_.sample(clock_ns_ - begin - outside_hops_ns_, calls));
  }
  accounted_since_ = clock_ns_;
  turn_.store(turn + 1, std::memory_order_release);
  return next;
}

// One call into the stage. False when there is nothing to do until the next wake.
bool Actor::step() {
  if (inject_blocking_ && inject_blocking_()) {
    wake(false);
    return false;
  }
  if (!outputs_have_room()) {
    accounted_ = Wait::output_space;
    return false;
  }
  if (resume_due_ || blocked_ == Wait::output_space) {
    call_resume();
    return true;
  }
  Message message;
  if (next_message(message)) {
    deliver(message);
    return true;
  }
  if (blocked_ != Wait::none) {
    accounted_ = blocked_;
    return false;
  }
  if (info_.source && !end_requested_) {
    call_resume();
    // Having nothing more is said with Wait::input: then only a post changes that.
    if (!std::exchange(batch_open_, false) || end_requested_) return true;
    accounted_ = Wait::input;
    return false;
  }
  if (batch_open_) {
    call_resume();
    batch_open_ = false;  // asked again for input: only a message changes that, and sets it anew
    return true;
  }
  if (end_requested_) {
    finish();
    return false;
  }
  if (!info_.source && !end_of_input_called_ && inputs_ended()) {
    call_end_of_input();
    return true;
  }
  accounted_ = Wait::input;
  return false;
}

bool Actor::outputs_have_room() {
  if (info_.max_emits == 0) return true;
  for (std::size_t port = 0; port < outputs_.size(); ++port) {
    if (!info_.outputs[port].required) continue;
    for (Edge* edge : outputs_[port].edges) {
      if (edge->has_room(info_.max_emits)) continue;
      edge->wait_for_room();
      if (!edge->has_room(info_.max_emits)) return false;
    }
  }
  return true;
}

bool Actor::next_message(Message& message) {
  if (completions_.pop(message)) {
    message.port = kCompletionPort;
    return true;
  }
  std::size_t ports = inputs_.size();
  if (blocked_ == Wait::device) ports = 0;
  if (blocked_ == Wait::memory) ports = std::min<std::size_t>(blocked_port_, ports);
  for (std::uint32_t port = 0; port < ports; ++port) {
    if (take_from(port, message)) return true;
  }
  return false;
}

bool Actor::take_from(std::uint32_t port, Message& message) {
  std::vector<Edge*>& edges = inputs_[port];
  for (std::size_t i = 0; i < edges.size(); ++i) {
    Edge& edge = *edges[(next_edge_[port] + i) % edges.size()];
    bool wake_producer = false;
    if (!edge.pop(message, wake_producer)) continue;
    next_edge_[port] = static_cast<std::uint32_t>((next_edge_[port] + i + 1) % edges.size());
    if (wake_producer) edge.producer->wake(edge.crosses_placements);
    message.port = static_cast<std::uint8_t>(port);
    return true;
  }
  return false;
}

bool Actor::inputs_ended() const {
  bool any = false;
  for (std::size_t port = 0; port < inputs_.size(); ++port) {
    for (const Edge* edge : passing_[port]) {
      if (info_.inputs[port].feedback) continue;
      any = true;
      if (!edge->ended()) return false;
    }
    for (const Edge* edge : inputs_[port]) {
      if (!edge->empty()) return false;
      if (info_.inputs[port].feedback) continue;
      any = true;
      // In this order, and after the ring was found empty: a message before an end is never missed.
      if (!edge->ended() || !edge->empty()) return false;
    }
  }
  return any;
}

void Actor::deliver(Message& message) {
  const std::uint64_t begin = begin_call();
  if (message.sent_ns != 0 && begin > message.sent_ns) metrics_.queue.add(begin - message.sent_ns);
  const std::uint8_t port = message.port;
  Wait wait = Wait::none;
  delivered_ = &message;
  passed_on_ = false;
  const bool returned = guarded("on_message", [&] { wait = stage_->on_message(message, *this); });
  delivered_ = nullptr;
  account_call(begin);
  metrics_.items.add(1);
  metrics_.messages.add(1);
  if (!returned) {
    if (!passed_on_) discard(message);
  } else if (blocked_ != Wait::none) {
    // The message may have cleared the reason. Resume is a call of its own: outputs need room for it.
    batch_open_ |= wait == Wait::input;
    resume_due_ = true;
  } else {
    after_call(wait, port);
  }
}

void Actor::call_resume() {
  const std::uint64_t begin = begin_call();
  resume_due_ = false;
  Wait wait = Wait::none;
  guarded("resume", [&] { wait = stage_->resume(*this); });
  account_call(begin);
  after_call(wait, static_cast<std::uint8_t>(blocked_port_));
}

void Actor::call_end_of_input() {
  const std::uint64_t begin = begin_call();
  end_of_input_called_ = true;
  guarded("end_of_input", [&] { stage_->end_of_input(*this); });
  account_call(begin);
  // Stages on a cycle end when they say so; all others with their inputs.
  const bool feeds_back = std::any_of(info_.inputs.begin(), info_.inputs.end(), [](const PortInfo& port) {
    return port.feedback && port.type == MessageType::step_done;
  });
  if (!feeds_back) end_requested_ = true;
}

// False when the stage threw; the pipeline has then been told.
template <class Call>
bool Actor::guarded(std::string_view function, Call&& call) {
  try {
    call();
    return true;
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "no memory in " + std::string(function) + "; lower the memory settings");
  } catch (const std::exception& error) {
    fail(ErrorCode::internal, "exception in " + std::string(function) + ": " + error.what());
  } catch (...) {
    fail(ErrorCode::internal, "exception in " + std::string(function) + " that is no std::exception");
  }
  return false;
}

std::uint64_t Actor::begin_call() {
  emit_ns_ = 0;
  // What was sent waits for the end of another call only where calls have been short for a while.
  const bool may_wait =
      short_calls_ >= kShortCalls && clock_ns_ - unannounced_since_ns_ < most_unannounced_ns_;
  if (!unannounced_.empty() && !may_wait) announce(false);
  if (hops_timed_) clock_ns_ = now_ns();
  return clock_ns_;
}

void Actor::account_call(std::uint64_t begin) {
  clock_ns_ = now_ns();
  const std::uint64_t spent = clock_ns_ - begin;
  outside_hops_ns_ += spent - std::min(emit_ns_, spent);
  short_calls_ = spent < most_unannounced_ns_ ? std::min(short_calls_ + 1, kShortCalls) : 0;
  metrics_.service.add(spent);
  metrics_.busy_ns.add(spent);
  metrics_.calls.add(1);
}

void Actor::fail(ErrorCode code, std::string what) {
  if (on_failure_) on_failure_(Status(code, std::move(what)).in_stage(name_));
}

void Actor::after_call(Wait wait, std::uint8_t port) {
  blocked_.store(wait == Wait::input ? Wait::none : wait, std::memory_order_relaxed);
  if (wait == Wait::input) batch_open_ = true;
  if (blocked_ != Wait::none) blocked_port_ = port == kCompletionPort ? 0 : port;
}

void Actor::finish() {
  announce(false);
  for (const Output& output : outputs_) {
    for (Edge* edge : output.edges) {
      edge->end();
      edge->consumer->wake(edge->crosses_placements);
      if (edge->passed != nullptr) edge->passed->wake(true);
    }
  }
  leave();
}

void Actor::leave() {
  ended_.store(true, std::memory_order_release);
  if (on_ended_) on_ended_();
}

void Actor::discard_inputs() {
  Message message;
  for (const std::vector<Edge*>& edges : inputs_) {
    for (Edge* edge : edges) {
      bool wake_producer = false;
      while (edge->pop(message, wake_producer)) {
        discard(message);
        if (wake_producer) edge->producer->wake(edge->crosses_placements);
      }
    }
  }
  while (completions_.pop(message)) discard(message);
}

void Actor::emit(std::uint32_t output_port, const Message& message) {
  // Behind several edges there are several owners: then only emit_to says which.
  emit_to(output_port, owners(output_port) > 1 ? kNoOwner : 0, message);
}

void Actor::emit_to(std::uint32_t output_port, std::uint32_t owner, const Message& message) {
  if (delivered_ != nullptr && owned_by_receiver(message) == owned_by_receiver(*delivered_))
    passed_on_ = true;
  if (output_port >= outputs_.size() || message.type != info_.outputs[output_port].type) {
    return refuse(message, "sent a message of type " + std::string(message_type_name(message.type)) +
                               " on output " + std::to_string(output_port) +
                               ", which its StageInfo does not declare");
  }
  const Output& output = outputs_[output_port];
  if (output.edges.empty()) return discard(message);
  if (owner < output.edges.size()) return send(*output.edges[owner], message);
  // The partitions were checked when the model was opened: the stage names no expert of its own.
  refuse(message, "sent on output " + std::string(info_.outputs[output_port].name) +
                      " to an owner that it does not have");
}

void Actor::send(Edge& edge, const Message& message) {
  Message sent = message;
  sent.sent_ns = now_ns();
  if (!edge.push(sent)) {
    return refuse(message, "sent more than edge " + edge.name + " holds (" + std::to_string(edge.capacity()) +
                               "); correct max_emits of its StageInfo, or look at Emitter::room");
  }
  if (info_.source) metrics_.items.add(1);  // a source is sent nothing: its items are what it sends
  if (edge.crosses_placements) {
    edge.consumer->wake(true);
  } else {
    if (unannounced_.empty()) unannounced_since_ns_ = sent.sent_ns;
    if (!std::exchange(edge.unannounced, true)) unannounced_.push_back(&edge);
    // In a long call: at once what comes first, and what follows closely together.
    if (sent.sent_ns - std::max(clock_ns_, announced_ns_) >= most_unannounced_ns_) {
      announce(false);
      announced_ns_ = sent.sent_ns;
    }
  }
  if (hops_timed_) emit_ns_ += now_ns() - sent.sent_ns;
}

// Wakes those who were sent something. To wake costs more than to send, and what another thread takes over
// must travel to its processor: so one wake serves all that a few short calls have sent, and with `hand_over`
// one of those who wait may go on on this thread, which has what was sent at hand. (Actors of other
// placements are woken at once: they have threads of their own, which had better begin.)
Actor* Actor::announce(bool hand_over) {
  Actor* next = nullptr;
  for (Edge* edge : unannounced_) {
    edge->unannounced = false;
    Actor& consumer = *edge->consumer;
    if (!hand_over || next != nullptr) {
      consumer.wake(false);
    } else if (consumer.claim(false)) {
      next = &consumer;
    }
  }
  unannounced_.clear();
  return next;
}

// A message that breaks a promise of the contract: the pipeline aborts.
void Actor::refuse(const Message& message, std::string what) {
  discard(message);
  fail(ErrorCode::internal, std::move(what));
}

std::uint32_t Actor::room(std::uint32_t output_port) const {
  if (output_port >= outputs_.size() || outputs_[output_port].edges.empty()) return 0;
  const std::vector<Edge*>& edges = outputs_[output_port].edges;
  std::uint32_t least = edges[0]->room();
  for (std::size_t i = 1; i < edges.size(); ++i) least = std::min(least, edges[i]->room());
  return least;
}

std::uint32_t Actor::owners(std::uint32_t output_port) const {
  return output_port < outputs_.size() ? static_cast<std::uint32_t>(outputs_[output_port].edges.size()) : 0;
}

std::uint32_t Actor::owner(std::uint32_t output_port, std::uint32_t expert) const {
  if (output_port >= outputs_.size()) return kNoOwner;
  const std::vector<std::uint16_t>& owners = outputs_[output_port].owners;
  if (owners.empty()) return 0;
  return expert < owners.size() ? owners[expert] : kNoOwner;
}

void Actor::end() { end_requested_ = true; }

void Actor::post(const Message& message) noexcept {
  // The capacity covers everything that can be outstanding; a full queue only means that it is being drained.
  while (!completions_.push(message)) std::this_thread::yield();
  wake(true);
}

std::string Actor::describe() const {
  std::string text = name_ + ":";
  for (std::size_t port = 0; port < inputs_.size(); ++port) {
    for (const Edge* edge : inputs_[port]) {
      text += " " + std::string(info_.inputs[port].name) + "=" + std::to_string(edge->level());
      if (edge->ended()) text += " (ended)";
    }
  }
  static constexpr const char* kNames[] = {"",
                                           " waits for input",
                                           " waits for output space",
                                           " waits for an expert",
                                           " waits for a device",
                                           " waits for memory"};
  for (std::size_t port = 0; port < passing_.size(); ++port) {
    for (const Edge* edge : passing_[port])
      text += " past " + std::string(info_.inputs[port].name) + (edge->ended() ? " (ended)" : "");
  }
  text += kNames[static_cast<std::size_t>(blocked_.load(std::memory_order_relaxed))];
  return text + (due() ? " is due" : "") + (ended() ? " ended" : "");
}

}  // namespace colibri
