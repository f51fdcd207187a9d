// LayerQuotas: how many records of each layer may stay in memory.
//
// Equal at first. Then places go, one a cycle at most, from the layer that would lose the fewest
// hits with one place less to the one that would win most with one more. Both are measured, not
// guessed: the last record kept and the first one not kept of each layer (a ghost) are named after
// a visit, and the next visit tells whether it demands them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace colibri {

class LayerQuotas {
 public:
  struct Move {
    std::uint32_t from = 0, to = 0;  // layers
  };

  // owned: records of each layer that there may be. places: records over all layers.
  LayerQuotas(std::uint32_t layers, std::uint32_t owned, std::uint32_t places);

  std::uint32_t operator[](std::uint32_t layer) const noexcept { return quota_[layer]; }
  // A visit of the layer has passed: whether it demanded the first record that was not kept, and the last one
  // that was. A layer with places to spare has neither.
  void measured(std::uint32_t layer, bool ghost_demanded, bool last_demanded) noexcept;
  // Moves a place, if it is time for it and pays.
  std::optional<Move> move() noexcept;

 private:
  // Running means over the last visits, at most kWindow.
  struct Margin {
    std::uint32_t visits = 0;
    float won = 0;   // hits a visit with one place more
    float lost = 0;  // with one less
  };

  std::uint32_t owned_;
  std::vector<std::uint32_t> quota_;  // [layers]
  std::vector<Margin> margins_;       // [layers]
  std::uint32_t until_move_;          // visits of any layer
};

}  // namespace colibri
