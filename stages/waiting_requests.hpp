// WaitingRequests: requests that have not started, and which of them starts next.
//
// In order of input, or the longest first: then long ones do not trail behind when all
// others are done, in steps that are nearly empty and still read the experts. How long a
// request takes is its max_tokens times the share of it that finished requests like it have
// used; like it: of the same powers of two of max_tokens and of the prompt's length, and where
// few of these have finished, of max_tokens alone. One that nothing can end early takes all.
#pragma once

#include <array>
#include <colibri/messages.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace colibri {

enum class StartOrder : std::uint8_t { input, longest_first };

class WaitingRequests {
 public:
  explicit WaitingRequests(StartOrder order = StartOrder::input) : order_(order) {}

  StartOrder order() const noexcept { return order_; }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  void push(std::unique_ptr<Sequence> sequence);
  // The one that starts next; stays the same until push, pop or finished. Not empty.
  const Sequence& next() const { return *find_next().at->second; }
  Sequence& next() { return *find_next().at->second; }
  std::unique_ptr<Sequence> pop();
  // Takes out all that are cancelled.
  std::vector<std::unique_ptr<Sequence>> remove_cancelled();
  void clear() noexcept {
    for (Requests& kind : requests_) kind.clear();
    size_ = 0;
  }

  // Learns from a request that was answered.
  void finished(const Sequence& sequence);

 private:
  // Descending max_tokens, then order of input; all 0 when that alone counts.
  struct Key {
    std::uint32_t max_tokens = 0;
    std::uint64_t arrival = 0;
    bool operator<(const Key& other) const noexcept {
      return max_tokens != other.max_tokens ? max_tokens > other.max_tokens : arrival < other.arrival;
    }
  };
  using Requests = std::map<Key, std::unique_ptr<Sequence>>;
  static constexpr std::size_t kClasses = 33;  // bit widths of max_tokens
  // Prompts by bit width of their length; the last kind takes all its tokens for certain.
  static constexpr std::size_t kKinds = 34, kCertain = kKinds - 1;
  struct Usage {
    double generated = 0, allowed = 0;
  };
  struct Place {
    std::size_t kind = 0;
    Requests::const_iterator at;
  };

  static std::uint32_t tokens_of(const Sequence& sequence) noexcept;
  static std::size_t kind_of(const Sequence& sequence) noexcept;
  Place find_next() const;
  double share(std::size_t kind, std::size_t length_class) const noexcept;

  StartOrder order_;
  std::uint64_t arrivals_ = 0;
  std::size_t size_ = 0;
  std::array<Requests, kKinds> requests_;  // all in the first one when the order is that of input
  std::array<Usage, kClasses> usage_{};    // of all kinds
  std::array<std::array<Usage, kClasses>, kKinds> usage_of_kind_{};
};

}  // namespace colibri
