#include "runtime/engine/actor.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace colibri {
namespace {

// Calls of one run before other actors get their turn.
constexpr int kCallsPerRun = 32;

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Messages that nobody will see any more: what belongs to its receiver goes with them.
void discard(const Message& message) {
  if (message.type == MessageType::request) delete message.sequence();
  if (message.type == MessageType::outcome) delete message.outcome();
  if (message.type == MessageType::expert) delete message.error;
}

}  // namespace

Actor::Actor(std::string name, const StageInfo& info, std::unique_ptr<Stage> stage, Executor& executor,
             std::uint32_t completion_capacity)
    : name_(std::move(name)),
      info_(info),
      stage_(std::move(stage)),
      executor_(executor),
      inputs_(info.inputs.size()),
      next_edge_(info.inputs.size()),
      outputs_(info.outputs.size()),
      completions_(completion_capacity) {}

void Actor::wake(bool foreign) {
  if (!scheduled_.exchange(true, std::memory_order_seq_cst)) executor_.schedule(*this, foreign);
}

void Actor::run() {
  // The executor's own ordering is invisible to a thread sanitizer, so it is stated here: the load and the
  // exchange order what waking threads did before this run; the turn, what the run before did.
  static_cast<void>(scheduled_.load(std::memory_order_acquire));
  scheduled_.exchange(false, std::memory_order_seq_cst);
  const std::uint32_t turn = turn_.load(std::memory_order_acquire);
  if (accounted_ != Wait::none) {
    Counter& blocked = metrics_.blocked_ns[static_cast<std::size_t>(accounted_)];
    blocked.add(now_ns() - accounted_since_);
    accounted_ = Wait::none;
  }
  int calls = 0;
  while (!ended() && calls < kCallsPerRun && step()) ++calls;
  if (ended()) discard_inputs();
  const bool more = !ended() && calls == kCallsPerRun;
  turn_.store(turn + 1, std::memory_order_release);
  if (more) wake(false);
}

// One call into the stage. False when there is nothing to do until the next wake.
bool Actor::step() {
  if (inject_blocking_ && inject_blocking_()) {
    wake(false);
    return false;
  }
  if (!outputs_have_room()) {
    set_blocked(Wait::output_space);
    return false;
  }
  if (blocked_ == Wait::output_space) {
    call_resume();
    return true;
  }
  // Ends are read before the last look at the rings: a message before an end is never missed.
  const bool inputs_ended = this->inputs_ended();
  Message message;
  if (next_message(message)) {
    deliver(message);
    return true;
  }
  if (blocked_ != Wait::none) {
    set_blocked(blocked_);
    return false;
  }
  if (info_.source && !end_requested_) {
    call_resume();
    // Having nothing more is said with Wait::input: then only a post changes that.
    if (!std::exchange(batch_open_, false) || end_requested_) return true;
    set_blocked(Wait::input);
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
  if (!info_.source && inputs_ended && !end_of_input_called_) {
    end_of_input_called_ = true;
    stage_->end_of_input(*this);
    // Stages on a cycle end when they say so; all others with their inputs.
    bool feeds_back = false;
    for (const PortInfo& port : info_.inputs)
      feeds_back |= port.feedback && port.type == MessageType::step_done;
    if (!feeds_back) end_requested_ = true;
    return true;
  }
  set_blocked(Wait::input);
  return false;
}

bool Actor::outputs_have_room() {
  if (info_.max_emits == 0) return true;
  for (std::size_t port = 0; port < outputs_.size(); ++port) {
    if (!info_.outputs[port].required) continue;
    for (Edge* edge : outputs_[port].edges) {
      if (edge->room() >= info_.max_emits) continue;
      edge->wait_for_room();
      if (edge->room() < info_.max_emits) return false;
    }
  }
  return true;
}

bool Actor::next_message(Message& message) {
  if (completions_.pop(message)) {
    message.port = kCompletionPort;
    return true;
  }
  const std::size_t ports =
      blocked_ == Wait::none ? inputs_.size() : std::min<std::size_t>(blocked_port_, inputs_.size());
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
    for (const Edge* edge : inputs_[port]) {
      if (!edge->empty()) return false;
      if (info_.inputs[port].feedback) continue;
      any = true;
      if (!edge->ended() || !edge->empty()) return false;
    }
  }
  return any;
}

void Actor::deliver(Message& message) {
  const std::uint64_t begin = now_ns();
  if (message.sent_ns != 0 && begin > message.sent_ns) metrics_.queue.add(begin - message.sent_ns);
  const std::uint8_t port = message.port;
  const bool was_blocked = blocked_ != Wait::none;
  const Wait wait = stage_->on_message(message, *this);
  const std::uint64_t spent = now_ns() - begin;
  metrics_.service.add(spent);
  metrics_.busy_ns.add(spent);
  metrics_.calls.add(1);
  metrics_.items.add(1);
  if (was_blocked) {
    // A message of a port that is still served may have cleared the reason.
    batch_open_ |= wait == Wait::input;
    call_resume();
    return;
  }
  after_call(wait, port);
}

void Actor::call_resume() {
  const std::uint64_t begin = now_ns();
  const std::uint32_t port = blocked_port_;
  const Wait wait = stage_->resume(*this);
  const std::uint64_t spent = now_ns() - begin;
  metrics_.service.add(spent);
  metrics_.busy_ns.add(spent);
  metrics_.calls.add(1);
  after_call(wait, static_cast<std::uint8_t>(port));
}

void Actor::after_call(Wait wait, std::uint8_t port) {
  blocked_ = wait == Wait::input ? Wait::none : wait;
  if (wait == Wait::input) batch_open_ = true;
  if (blocked_ != Wait::none) blocked_port_ = port == kCompletionPort ? 0 : port;
}

void Actor::set_blocked(Wait wait) {
  accounted_ = wait;
  accounted_since_ = now_ns();
}

void Actor::finish() {
  for (const Output& output : outputs_) {
    for (Edge* edge : output.edges) {
      edge->end();
      edge->consumer->wake(edge->crosses_placements);
    }
  }
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
  const Output& output = outputs_[output_port];
  if (output.edges.empty()) return;
  if (owner < output.edges.size()) return send(*output.edges[owner], message);
  // The partitions were checked when the model was opened: the stage names no expert of its own.
  if (on_failure_) {
    on_failure_(Status(ErrorCode::internal, "stage " + name_ + " sent on output " +
                                                std::string(info_.outputs[output_port].name) +
                                                " to an owner that it does not have; please report this"));
  }
}

void Actor::send(Edge& edge, const Message& message) {
  Message sent = message;
  sent.sent_ns = now_ns();
  if (!edge.push(sent)) {
    if (on_failure_) {
      on_failure_(Status(ErrorCode::internal, "stage " + name_ + " sent more than edge " + edge.name +
                                                  " holds (" + std::to_string(edge.capacity()) +
                                                  "); please report this"));
    }
    return;
  }
  if (info_.source) metrics_.items.add(1);  // a source is sent nothing: its items are what it sends
  edge.consumer->wake(edge.crosses_placements);
}

std::uint32_t Actor::room(std::uint32_t output_port) const {
  const std::vector<Edge*>& edges = outputs_[output_port].edges;
  if (edges.empty()) return 0;
  std::uint32_t least = edges[0]->room();
  for (std::size_t i = 1; i < edges.size(); ++i) least = std::min(least, edges[i]->room());
  return least;
}

std::uint32_t Actor::owners(std::uint32_t output_port) const {
  return static_cast<std::uint32_t>(outputs_[output_port].edges.size());
}

std::uint32_t Actor::owner(std::uint32_t output_port, std::uint32_t expert) const {
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
  return text + kNames[static_cast<std::size_t>(blocked_)] + (ended() ? " ended" : "");
}

}  // namespace colibri
