// Weights come out of memory while others are multiplied: each product does so much with a byte of them that
// the processor does not see far enough ahead on its own. Fetching changes no result, and what lies beyond
// the last panel is at most fetched, never touched.
#pragma once

#include <cstddef>
#include <cstdint>

// In an unnamed namespace: each variant is compiled with flags of its own.
namespace colibri::kernels {
namespace {

// What a tile fetches: of the stretches that its panels consist of, those whose number is `turn` modulo
// `turns`, `distance` bytes on. Tiles that take the same panels one after the other take turns.
struct WeightsAhead {
  std::size_t distance = 0;
  std::uint32_t turn = 0, turns = 0;  // no turns: nothing is fetched
};

// Goes along kPanels panels, a stretch of kBytes of each at a time.
template <int kPanels, std::uint32_t kBytes>
class WeightFetcher {
 public:
  [[gnu::always_inline]] explicit WeightFetcher(const WeightsAhead& ahead) noexcept
      : distance_(ahead.distance),
        turns_(ahead.turns),
        left_(ahead.turns == 0 ? ~std::uint32_t{0} : ahead.turn) {}

  // To be called for every stretch; `weights`: that of the first panel.
  [[gnu::always_inline]] void step(const std::byte* weights, std::uint64_t panel_bytes) noexcept {
    if (left_-- != 0) return;
    left_ = turns_ - 1;
    constexpr std::uint32_t kLine = 64;
    constexpr int kAllLevels = 3;  // as __builtin_prefetch counts
    const std::byte* next = weights + distance_;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p, next += panel_bytes) {
      // Of one panel GCC would keep the distance of every line in a register, or on the stack. Of two it
      // does better with what it sees: a sixth in tiles of eight rows.
      if constexpr (kPanels == 1) asm("" : "+r"(next));
#pragma GCC unroll 32
      for (std::uint32_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(next + at, 0, kAllLevels);
    }
  }

 private:
  std::size_t distance_;
  std::uint32_t turns_, left_;  // stretches until the next one that is fetched
};

}  // namespace
}  // namespace colibri::kernels
