// TakenApart: frees a JSON document without memory.
//
// nlohmann::json takes memory in its destructor, to free nested values without recursion; when there is none, the
// program ends. A document whose nested values are emptied first, from the inside, needs none.
// Internal to io: included from .cpp files only.
#pragma once

#include <nlohmann/json.hpp>

namespace colibri {

class TakenApart {
 public:
  // `document` must outlive this, and is empty afterwards.
  explicit TakenApart(nlohmann::json& document) noexcept : document_(document) {}
  ~TakenApart() { take_apart(document_, 0); }
  TakenApart(const TakenApart&) = delete;
  TakenApart& operator=(const TakenApart&) = delete;

 private:
  // Deeper documents than anybody writes are left to the destructor: they would take all of the stack here.
  static constexpr int kMaximumDepth = 256;

  static void take_apart(nlohmann::json& value, int depth) noexcept {
    if (!value.is_structured() || depth == kMaximumDepth) return;
    for (nlohmann::json& part : value) take_apart(part, depth + 1);
    value.clear();
  }

  nlohmann::json& document_;
};

}  // namespace colibri
