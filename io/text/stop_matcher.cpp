// The held text is scanned from its start at each push: it is shorter than the longest
// stop string plus one piece, so nothing cleverer than comparing pays.
#include "io/text/stop_matcher.hpp"

#include <algorithm>
#include <utility>

namespace colibri {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings) : stop_strings_(std::move(stop_strings)) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

StopMatcher::Output StopMatcher::push(std::string_view piece) {
  if (stopped_) return {{}, true};
  if (stop_strings_.empty()) return {std::string(piece), false};
  held_ += piece;
  return advance(false);
}

StopMatcher::Output StopMatcher::flush() {
  if (stopped_) return {{}, true};
  return advance(true);
}

StopMatcher::Verdict StopMatcher::verdict_at(std::size_t start) const {
  const std::string_view rest = std::string_view(held_).substr(start);
  Verdict verdict = Verdict::none;
  for (const std::string& stop : stop_strings_) {
    if (rest.starts_with(stop)) return Verdict::match;
    if (rest.size() < stop.size() && std::string_view(stop).starts_with(rest)) verdict = Verdict::possible;
  }
  return verdict;
}

StopMatcher::Output StopMatcher::advance(bool text_ended) {
  std::size_t start = 0;
  for (; start < held_.size(); ++start) {
    const Verdict verdict = verdict_at(start);
    if (verdict == Verdict::match) {
      stopped_ = true;
      break;
    }
    // An earlier start that may yet match outranks any later one: wait.
    if (verdict == Verdict::possible && !text_ended) break;
  }
  // What is in front of `start` is final: no stop string begins in it.
  Output output{held_.substr(0, start), stopped_};
  held_.erase(0, stopped_ ? held_.size() : start);
  return output;
}

}  // namespace colibri
