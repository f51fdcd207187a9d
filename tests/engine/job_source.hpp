// Sources and sinks of jobs whose end a test decides.
#pragma once

#include <colibri/services.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace colibri::testing {

// The same request `count` times, as a file of that many lines would give it.
class RepeatedSource final : public RequestSource {
 public:
  RepeatedSource(Request request, std::uint64_t count) : request_(std::move(request)), count_(count) {}
  Pull pull(Request& request) override {
    if (next_ == count_) return Pull::end;
    request = request_;
    request.index = next_++;
    request.id = std::to_string(request.index);
    return Pull::request;
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}
  std::uint64_t pulled() const { return next_; }

 private:
  Request request_;
  std::uint64_t count_;
  std::uint64_t next_ = 0;
};

// Keeps results; the `broken_after`-th one and all after it are refused.
class CollectingSink final : public ResultSink {
 public:
  explicit CollectingSink(std::uint64_t broken_after = ~std::uint64_t{0}) : broken_after_(broken_after) {}
  Status result(RequestResult&& result) override {
    if (results.size() >= broken_after_) return {ErrorCode::io, "the disk is full: test; make room"};
    const std::uint64_t index = result.index;
    twice |= !results.emplace(index, std::move(result)).second;
    return {};
  }
  Status flush() override { return {}; }

  std::map<std::uint64_t, RequestResult> results;
  bool twice = false;

 private:
  std::uint64_t broken_after_;
};

}  // namespace colibri::testing
