#include "stages/waiting_requests.hpp"

#include <bit>
#include <utility>

namespace colibri {
namespace {

// A class counts as this many tokens that were all used, until requests of it have finished.
constexpr double kPriorTokens = 64;

}  // namespace

// Scored and embedded requests have no tail: they come last.
std::uint32_t WaitingRequests::tokens_of(const Sequence& sequence) noexcept {
  return sequence.request.task == Task::generate ? sequence.request.max_tokens : 0;
}

void WaitingRequests::push(std::unique_ptr<Sequence> sequence) {
  const std::uint32_t tokens = order_ == StartOrder::input ? 0 : tokens_of(*sequence);
  requests_.emplace_hint(requests_.end(), Key{tokens, arrivals_++}, std::move(sequence));
}

std::unique_ptr<Sequence> WaitingRequests::pop() {
  const auto next = find_next();
  // A const_iterator of a map does not let go of its value.
  auto node = requests_.extract(next);
  return std::move(node.mapped());
}

double WaitingRequests::share(std::size_t length_class) const noexcept {
  const Usage& usage = usage_[length_class];
  return (usage.generated + kPriorTokens) / (usage.allowed + kPriorTokens);
}

// The longest of each class is first in its range of keys.
WaitingRequests::Requests::const_iterator WaitingRequests::find_next() const {
  auto best = requests_.begin();
  if (order_ == StartOrder::input) return best;
  double longest = -1;
  for (auto candidate = requests_.begin(); candidate != requests_.end();) {
    const std::size_t length_class = std::bit_width(candidate->first.max_tokens);
    const double length = candidate->first.max_tokens * share(length_class);
    if (length > longest) {
      longest = length;
      best = candidate;
    }
    if (length_class == 0) break;
    // The first key below the class: its largest value is 2^(class - 1) - 1.
    candidate = requests_.lower_bound(Key{(std::uint32_t{1} << (length_class - 1)) - 1, 0});
  }
  return best;
}

void WaitingRequests::finished(const Sequence& sequence) {
  const std::uint32_t allowed = tokens_of(sequence);
  if (allowed == 0) return;
  Usage& usage = usage_[std::bit_width(allowed)];
  usage.allowed += allowed;
  usage.generated += static_cast<double>(sequence.tokens.size() - sequence.prompt_size);
}

}  // namespace colibri
