// A source of requests that are all there: a list, in order.
#pragma once

#include <colibri/services.hpp>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace colibri {

class ListSource final : public RequestSource {
 public:
  explicit ListSource(std::vector<Request> requests) : requests_(std::move(requests)) {}
  Pull pull(Request& request) override {
    if (next_ == requests_.size()) return Pull::end;
    request = std::move(requests_[next_++]);
    return Pull::request;
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}

 private:
  std::vector<Request> requests_;
  std::size_t next_ = 0;
};

}  // namespace colibri
