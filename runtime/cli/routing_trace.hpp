// RoutingTrace: which experts each row picked, as JSONL.
//
// First a header line with the sizes that a replay needs, then one line a row and MoE layer:
//   {"colibri_routing_trace": 1, "layers": .., "experts": .., "experts_per_token": .., "record_bytes": ..,
//    "slots": .., "transit": .., "transit_limit": .., "between_layers": ..}
//   {"step": 1, "visit": 3, "id": "a", "position": 0, "layer": 0, "experts": [1, 7], "weights": [0.4, 0.6]}
// Slots that are kept free of residents, `transit`, follow from the last two with any number of slots:
// TransitNeed in stages/slot_table.hpp.
#pragma once

#include <colibri/engine.hpp>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace colibri::cli {

class RoutingTrace final : public TraceRecorder {
 public:
  explicit RoutingTrace(std::string path) : path_(std::move(path)) {}

  // Makes the file anew and writes the header; called once, before any row.
  Status begin(const Engine& engine);
  bool wants_values() const override { return false; }
  bool wants_routing() const override { return true; }
  void values(std::string_view, std::uint32_t, const Sequence&, std::uint32_t,
              std::span<const float>) override {}
  void routing(std::uint64_t step, std::uint64_t visit, const Sequence& sequence, std::uint32_t position,
               std::uint32_t layer, std::span<const std::uint32_t> experts,
               std::span<const float> weights) override;
  // Writes what is left; reports the first failure of all writes.
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  void write_line();

  std::string path_;
  std::mutex mutex_;
  std::unique_ptr<std::FILE, Close> file_;
  std::string line_;
  int error_ = 0;
};

}  // namespace colibri::cli
