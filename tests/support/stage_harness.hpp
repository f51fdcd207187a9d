// StageHarness drives one stage without threads, and plays its executor.
//
// The context counts, hands out memory and parameters as the runtime would; `parallel`
// runs its tiles inline in a seeded shuffled order, so a result that depends on their
// order shows. What the stage emits is recorded by port.
#pragma once

#include <algorithm>
#include <chrono>
#include <colibri/registry.hpp>
#include <colibri/services.hpp>
#include <colibri/stage.hpp>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/expert_partition.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::testing {

class HarnessContext final : public StageContext, public CompletionPort {
 public:
  // `experts` of params is the stage's part of the experts when its kind is partitioned.
  HarnessContext(const StageInfo& info, const Services& services, std::uint64_t memory_bytes,
                 std::map<std::string, std::string> params, std::uint32_t workers, std::uint64_t seed,
                 std::uint32_t instance = 0)
      : info_(info),
        services_(services),
        params_(std::move(params)),
        instance_(instance),
        workers_(workers),
        random_(seed) {
    if (const auto experts = params_.find("experts"); experts != params_.end()) {
      experts_ = ExpertPartition::parse(experts->second).value();
    }
    const std::uint64_t bytes = (memory_bytes + 63) / 64 * 64;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, std::max<std::uint64_t>(bytes, 64))));
    std::memset(memory_.get(), 0xAB, bytes);  // nothing may count on zeros
    memory_bytes_ = memory_bytes;
    for (const MetricInfo& metric : info.metrics) counters_.try_emplace(std::string(metric.name));
  }

  std::string_view name() const override { return info_.kind; }
  const Services& services() const override { return services_; }
  std::uint32_t instance() const override { return instance_; }
  bool owns(std::uint32_t expert) const override { return experts_.contains(expert); }
  std::uint64_t integer(std::string_view param) const override {
    return parse_bytes(value(param)).value();
  }
  double number(std::string_view param) const override { return std::strtod(value(param).c_str(), nullptr); }
  bool boolean(std::string_view param) const override { return value(param) == "true"; }
  std::string_view text(std::string_view param) const override {
    return texts_.insert_or_assign(std::string(param), value(param)).first->second;
  }
  bool is_auto(std::string_view param) const override { return value(param) == "auto"; }
  // As Engine::set_parameter does; only for parameters that may change while running.
  void set(std::string_view param, std::string value) {
    for (const ParamInfo& declared : info_.params) {
      if (declared.name == param && !declared.while_running) throw std::logic_error("a parameter that never changes");
    }
    params_.insert_or_assign(std::string(param), std::move(value));
  }
  std::span<std::byte> memory() override { return {memory_.get(), memory_bytes_}; }
  Counter* counter(std::string_view metric) override {
    const auto found = counters_.find(std::string(metric));
    if (found == counters_.end()) throw std::logic_error("undeclared metric " + std::string(metric));
    return &found->second;
  }
  CompletionPort& completion_port() override { return *this; }
  void post(const Message& message) noexcept override {
    const std::lock_guard lock(posted_mutex_);
    posted.push_back(message);
    arrived_.notify_all();
  }
  // The oldest posted message; waits for it up to `limit`. False when there is none.
  bool take_posted(Message& message, std::chrono::milliseconds limit) {
    std::unique_lock lock(posted_mutex_);
    if (!arrived_.wait_for(lock, limit, [this] { return !posted.empty(); })) return false;
    message = posted.front();
    posted.erase(posted.begin());
    return true;
  }
  std::uint32_t workers() const override { return workers_; }

  std::vector<Message> posted;

 protected:
  void run_parallel(std::size_t tiles, void (*body)(void*, std::size_t), void* object) override {
    std::vector<std::size_t> order(tiles);
    for (std::size_t tile = 0; tile < tiles; ++tile) order[tile] = tile;
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t tile : order) body(object, tile);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::string value(std::string_view param) const {
    for (const ParamInfo& declared : info_.params) {
      if (declared.name != param) continue;
      const auto given = params_.find(std::string(param));
      return given == params_.end() ? std::string(declared.default_value) : given->second;
    }
    throw std::logic_error("undeclared parameter " + std::string(param));
  }

  const StageInfo& info_;
  const Services& services_;
  std::map<std::string, std::string> params_;
  mutable std::map<std::string, std::string> texts_;
  std::map<std::string, Counter> counters_;
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t memory_bytes_ = 0;
  ExpertPartition experts_;
  std::uint32_t instance_;
  std::uint32_t workers_;
  std::mt19937_64 random_;
  std::mutex posted_mutex_;
  std::condition_variable arrived_;
};

// Records by port. `limit` is the room that every port has in one call. Behind a port stands one owner of all
// experts, unless `shares` gives the owners' parts.
class RecordingEmitter final : public Emitter {
 public:
  void emit(std::uint32_t port, const Message& message) override {
    if (owners(port) > 1) throw std::logic_error("emit without an owner on a port that has several");
    emit_to(port, 0, message);
  }
  void emit_to(std::uint32_t port, std::uint32_t owner, const Message& message) override {
    if (owner >= owners(port)) throw std::logic_error("emit to an owner that the port does not have");
    const std::uint32_t used = in_call_[{port, owner}]++;
    if (used >= limit) throw std::logic_error("emit on a full port");
    if (ended) throw std::logic_error("emit after end");
    sent[port].push_back(message);
    sent_to[port].push_back(owner);
  }
  std::uint32_t owners(std::uint32_t port) const override {
    const auto parts = shares.find(port);
    return parts == shares.end() ? 1 : static_cast<std::uint32_t>(parts->second.size());
  }
  std::uint32_t owner(std::uint32_t port, std::uint32_t expert) const override {
    const auto parts = shares.find(port);
    if (parts == shares.end()) return 0;
    for (std::uint32_t i = 0; i < parts->second.size(); ++i) {
      if (parts->second[i].contains(expert)) return i;
    }
    throw std::logic_error("an expert that no owner has");
  }
  std::uint32_t room(std::uint32_t port) const override {
    std::uint32_t most = 0;
    for (const auto& [to, used] : in_call_) most = to.first == port ? std::max(most, used) : most;
    return limit - most;
  }
  void end() override { ended = true; }
  void begin_call() { in_call_.clear(); }

  std::map<std::uint32_t, std::deque<Message>> sent;
  std::map<std::uint32_t, std::deque<std::uint32_t>> sent_to;  // the owner of each of these
  std::map<std::uint32_t, std::vector<ExpertPartition>> shares;
  std::uint32_t limit = 1U << 20;
  bool ended = false;

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> in_call_;  // by port and owner
};

struct HarnessOptions {
  std::map<std::string, std::string> params = {};
  std::uint32_t workers = 2;
  std::uint64_t seed = 1;
  std::uint32_t room = 1U << 20;  // of every output port in one call
  std::uint32_t instance = 0;
};

class StageHarness {
 public:
  // `services` outlives the harness. The stage is started; `started` says with what result.
  StageHarness(const StageKind& kind, const Services& services, HarnessOptions options = {})
      : context(*kind.info, services, kind.memory_bytes == nullptr ? 0 : kind.memory_bytes(services.plan),
                options.params, options.workers, options.seed, options.instance),
        stage_(kind.create()) {
    emitter.limit = options.room;
    started = stage_->start(context);
  }
  ~StageHarness() { stage_->stop(); }

  Wait send(std::uint8_t port, Message message) {
    message.port = port;
    emitter.begin_call();
    return last_wait = stage_->on_message(message, emitter);
  }
  Wait resume() {
    emitter.begin_call();
    return last_wait = stage_->resume(emitter);
  }
  void end_of_input() {
    emitter.begin_call();
    stage_->end_of_input(emitter);
  }
  // The oldest message on `port`, and whom it was sent to; false when there is none.
  bool take(std::uint32_t port, Message& message, std::uint32_t* owner = nullptr) {
    std::deque<Message>& queue = emitter.sent[port];
    if (queue.empty()) return false;
    message = queue.front();
    queue.pop_front();
    if (owner != nullptr) *owner = emitter.sent_to[port].front();
    emitter.sent_to[port].pop_front();
    return true;
  }
  std::size_t level(std::uint32_t port) { return emitter.sent[port].size(); }
  std::uint64_t count(std::string_view metric) { return context.counter(metric)->get(); }

  HarnessContext context;
  RecordingEmitter emitter;
  Status started;
  Wait last_wait = Wait::none;

 private:
  std::unique_ptr<Stage> stage_;
};

}  // namespace colibri::testing
