#include "runtime/memory/slot_shares.hpp"

#include <algorithm>
#include <numeric>

#include "topology/expert_partition.hpp"

namespace colibri {

static_assert(kMaxExperts <= kExpertIdLimit, "a partition can name every expert");

namespace {

// Multiply-adds of a processor while a drive reads a byte. Measured with two threads and a drive of 2.9 GB/s,
// on 1,024 rows a step of an OLMoE-1B-7B with a quarter of its experts in memory: with slots for as much as
// is read then, tokens a second are 10 % more than with 10 slots, and stay that with twice as many. A faster
// drive, or a slower processor, could use more slots than this gives; a slower drive leaves some without use.
constexpr std::uint64_t kMultiplyAddsPerByte = 100;

// Of a layer, beside its routed experts.
std::uint64_t dense_multiply_adds(const ModelSpec& spec) noexcept {
  const AttentionSpec& attention = spec.attention;
  const std::uint64_t outputs = std::uint64_t{2} * attention.query_size() + 2 * attention.kv_size();
  return spec.hidden_size * (outputs + std::uint64_t{3} * spec.shared_expert.intermediate_size);
}

}  // namespace

TransitNeed FetchPart::transit_need(std::uint64_t slot_bytes) const noexcept {
  return {.in_flight = inflight_bytes / slot_bytes, .between_layers = bytes_meanwhile / slot_bytes};
}

std::vector<FetchPart> fetch_parts(const PipelineSpec& pipeline, const Registry& registry,
                                   const ModelSpec& spec, std::uint32_t max_rows) {
  std::vector<FetchPart> parts;
  for (const StageSpec& stage : pipeline.stages) {
    const StageKind* kind = stage.kind == "fetch" ? registry.find(stage.kind) : nullptr;
    if (kind == nullptr) continue;
    FetchPart part{.stage = stage.name};
    const auto experts = ExpertPartition::parse(effective_param(stage, *kind->info, "experts"));
    for (std::uint32_t expert = 0; experts && expert < spec.num_experts; ++expert) {
      if (experts->contains(expert)) part.records += spec.num_moe_layers();
    }
    if (auto bytes = parse_bytes(effective_param(stage, *kind->info, "inflight_bytes"))) {
      part.inflight_bytes = bytes.value();
    }
    parts.push_back(std::move(part));
  }
  for (FetchPart& part : parts)
    part.bytes_meanwhile = dense_multiply_adds(spec) * max_rows / kMultiplyAddsPerByte / parts.size();
  return parts;
}

std::vector<SlotShare> share_out_slots(const std::vector<FetchPart>& fetches, std::uint64_t slots,
                                       std::uint64_t slot_bytes) {
  if (fetches.empty()) return {};
  // One each, then what is left in proportion to the records beyond the first, so that no fetch gets more
  // slots than it has records; the rest of the division goes to the largest remainders.
  std::uint64_t beyond = 0;
  for (const FetchPart& fetch : fetches) beyond += fetch.records - 1;
  const std::uint64_t left = slots - fetches.size();
  std::vector<std::uint64_t> counts, remainders;
  std::uint64_t given = 0;
  for (const FetchPart& fetch : fetches) {
    const std::uint64_t weighted = left * (fetch.records - 1);
    counts.push_back(1 + (beyond > 0 ? weighted / beyond : 0));
    remainders.push_back(beyond > 0 ? weighted % beyond : 0);
    given += counts.back();
  }
  std::vector<std::size_t> order(fetches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; given < slots; ++i, ++given) ++counts[order[i]];

  std::vector<SlotShare> shares;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const std::uint32_t transit =
        transit_slots(counts[i], fetches[i].records, fetches[i].transit_need(slot_bytes));
    shares.push_back({first, static_cast<std::uint32_t>(counts[i]), transit});
    first += shares.back().slots;
  }
  return shares;
}

}  // namespace colibri
