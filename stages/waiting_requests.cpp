#include "stages/waiting_requests.hpp"

#include <bit>
#include <utility>

namespace colibri {
namespace {

// Until requests of a class have finished, it counts as if this many tokens had all been used; one of its
// kinds, as if that many had been used as those of the class.
constexpr double kPriorTokens = 64;

}  // namespace

// Scored and embedded requests have no tail: they come last.
std::uint32_t WaitingRequests::tokens_of(const Sequence& sequence) noexcept {
  return sequence.request.task == Task::generate ? sequence.request.max_tokens : 0;
}

std::size_t WaitingRequests::kind_of(const Sequence& sequence) noexcept {
  if (sequence.request.ignore_eos && sequence.request.stop.empty()) return kCertain;
  return static_cast<std::size_t>(std::bit_width(sequence.prompt_size));
}

void WaitingRequests::push(std::unique_ptr<Sequence> sequence) {
  const bool by_length = order_ == StartOrder::longest_first;
  const std::uint32_t tokens = by_length ? tokens_of(*sequence) : 0;
  Requests& kind = requests_[by_length ? kind_of(*sequence) : 0];
  kind.emplace_hint(kind.end(), Key{tokens, arrivals_++}, std::move(sequence));
  ++size_;
}

std::unique_ptr<Sequence> WaitingRequests::pop() {
  const Place next = find_next();
  // A const_iterator of a map does not let go of its value.
  auto node = requests_[next.kind].extract(next.at);
  --size_;
  return std::move(node.mapped());
}

std::vector<std::unique_ptr<Sequence>> WaitingRequests::remove_cancelled() {
  std::vector<std::unique_ptr<Sequence>> removed;
  for (Requests& kind : requests_) {
    for (auto at = kind.begin(); at != kind.end();) {
      if (at->second->request.is_cancelled()) {
        removed.push_back(std::move(at->second));
        at = kind.erase(at);
      } else {
        ++at;
      }
    }
  }
  size_ -= removed.size();
  return removed;
}

double WaitingRequests::share(std::size_t kind, std::size_t length_class) const noexcept {
  if (kind == kCertain) return 1;
  const Usage& all = usage_[length_class];
  const double usual = (all.generated + kPriorTokens) / (all.allowed + kPriorTokens);
  const Usage& usage = usage_of_kind_[kind][length_class];
  return (usage.generated + usual * kPriorTokens) / (usage.allowed + kPriorTokens);
}

// The longest of each class is first in its range of keys. Among equals the first of the input.
WaitingRequests::Place WaitingRequests::find_next() const {
  if (order_ == StartOrder::input) return {0, requests_[0].begin()};
  Place best;
  double longest = -1;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const Requests& requests = requests_[kind];
    for (auto candidate = requests.begin(); candidate != requests.end();) {
      const std::size_t length_class = std::bit_width(candidate->first.max_tokens);
      const double length = candidate->first.max_tokens * share(kind, length_class);
      if (length > longest || (length == longest && candidate->first < best.at->first)) {
        longest = length;
        best = {kind, candidate};
      }
      if (length_class == 0) break;
      // The first key below the class: its largest value is 2^(class - 1) - 1.
      candidate = requests.lower_bound(Key{(std::uint32_t{1} << (length_class - 1)) - 1, 0});
    }
  }
  return best;
}

void WaitingRequests::finished(const Sequence& sequence) {
  const std::uint32_t allowed = tokens_of(sequence);
  const std::size_t kind = kind_of(sequence);
  if (allowed == 0 || kind == kCertain) return;
  const std::size_t length_class = std::bit_width(allowed);
  const auto generated = static_cast<double>(sequence.tokens.size() - sequence.prompt_size);
  for (Usage* usage : {&usage_[length_class], &usage_of_kind_[kind][length_class]}) {
    usage->allowed += allowed;
    usage->generated += generated;
  }
}

}  // namespace colibri
