// Finds stop strings in text that arrives in pieces, across piece borders.
//
// Text is passed on as soon as no stop string can begin in it any more; what could still
// be the beginning of one is held back. If several stop strings occur, the one that starts
// first wins, whichever is complete first: with stops "abcd" and "bc", the text "abc" is
// undecided until the next piece or flush. The stop string and what follows are dropped.
// One matcher serves one sequence; it is not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace colibri {

class StopMatcher {
 public:
  struct Output {
    std::string emit_text;  // final: will not be taken back
    bool stopped = false;   // a stop string was found; nothing will be emitted after this
  };

  // Empty stop strings never match (a request that asks for one is refused when parsed).
  explicit StopMatcher(std::vector<std::string> stop_strings);

  Output push(std::string_view piece);
  // The text has ended: what was held back is emitted, up to a stop string that is complete.
  Output flush();

 private:
  enum class Verdict { none, possible, match };
  // Whether a stop string stands at `start` of the held text, or could if more text came.
  Verdict verdict_at(std::size_t start) const;
  Output advance(bool text_ended);

  std::vector<std::string> stop_strings_;
  std::string held_;  // shorter than the longest stop string between calls
  bool stopped_ = false;
};

}  // namespace colibri
