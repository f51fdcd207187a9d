// Registry: the stage kinds that a pipeline may use. A host adds its own to its own registry.
#pragma once

#include <colibri/stage.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "io/container/model_spec.hpp"
#include "kernels/export.hpp"

namespace colibri {

// What decides how much memory a stage needs; all known before anything is allocated.
struct PlanInputs {
  const ModelSpec* spec = nullptr;
  std::uint32_t max_rows = 0;
  std::uint32_t wave_rows = 0;
  std::uint32_t in_flight = 1;
  std::uint32_t threads = 1;  // of the widest placement: StageContext::workers is never more
  std::uint32_t hint_depth = 1;  // most MoE layers that hints look ahead, 1 to kMaximumHintDepth
  kernels::KvFormat kv_format = kernels::KvFormat::f32;
  // Effective text of a parameter of the stage whose memory is asked for.
  std::function<std::string_view(std::string_view)> param;

  std::uint32_t waves_per_step() const noexcept { return (max_rows + wave_rows - 1) / wave_rows; }
  std::uint32_t wave_credits() const noexcept { return waves_per_step() * in_flight; }
};

struct StageKind {
  const StageInfo* info = nullptr;
  std::unique_ptr<Stage> (*create)() = nullptr;
  // Bytes of StageContext::memory(); null: none.
  std::uint64_t (*memory_bytes)(const PlanInputs& inputs) = nullptr;
};

class COLIBRI_API Registry {
 public:
  // Fails when the kind's name is taken, or a parameter is a text that may change while running.
  Status add(const StageKind& kind);
  const StageKind* find(std::string_view kind) const noexcept;
  const std::vector<StageKind>& kinds() const noexcept { return kinds_; }
  std::vector<const StageInfo*> infos() const;

 private:
  std::vector<StageKind> kinds_;
};

// All built-in kinds (stages/builtin.cpp).
COLIBRI_API Registry builtin_registry();

}  // namespace colibri
