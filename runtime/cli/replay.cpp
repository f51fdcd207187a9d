// colibri replay: what policies of keeping experts in memory would have hit in a job.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cli/verb_flags.hpp"
#include "runtime/metrics/routing_trace_reader.hpp"
#include "stages/slot_replay.hpp"
#include "stages/slot_table.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

struct ReplayArguments {
  std::string trace;
  std::string policy = "all";
  std::string slots = "10%,25%,50%";
  bool json = false;
};

// "25%" of all records, or a number of slots.
struct SlotCount {
  double percent = 0;
  std::uint64_t slots = 0;

  // At most `records`, which check_fits has seen to.
  std::uint32_t of(std::uint64_t records) const {
    const auto share = static_cast<std::uint64_t>(static_cast<double>(records) * percent / 100);
    return static_cast<std::uint32_t>(percent > 0 ? std::clamp<std::uint64_t>(share, 1, records) : slots);
  }
};

// A list such as 10%,25%,100; "10,25,50%" means shares, since the last one does. Empty: `list` is none.
std::vector<SlotCount> read_slots(const std::string& list) {
  std::vector<SlotCount> counts;
  const bool all_shares =
      !list.empty() && list.back() == '%' && std::count(list.begin(), list.end(), '%') == 1;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    SlotCount count;
    const bool share = all_shares || item.ends_with('%');
    if (item.ends_with('%')) item.pop_back();
    const char* end = item.data() + item.size();
    const auto read = share ? std::from_chars(item.data(), end, count.percent)
                            : std::from_chars(item.data(), end, count.slots);
    if (read.ec != std::errc() || read.ptr != end) return {};
    if (share ? !(count.percent > 0 && count.percent <= 100) : count.slots == 0) return {};
    counts.push_back(count);
  }
  return counts;
}

// More slots than records say nothing new, and are most likely a slip.
Status check_fits(const std::vector<SlotCount>& counts, std::uint64_t records) {
  for (const SlotCount& count : counts) {
    if (count.slots <= records) continue;
    return {ErrorCode::invalid_input,
            "more slots than the trace has records: " + std::to_string(count.slots) + " > " +
                std::to_string(records) + "; lower --slots, or use 100%"};
  }
  return {};
}

std::string check_slots(const std::string& list) {
  if (!read_slots(list).empty()) return {};
  return "expected shares of all records or numbers of slots, as in 10%,25%,100: " + list;
}

std::vector<SlotPolicy> read_policies(const std::string& name) {
  if (name == "all") return {std::begin(kSlotPolicies), std::end(kSlotPolicies)};
  return {*find_slot_policy(name)};
}

// What the job of the trace would hit with so many slots.
ReplayResult replay_with(const RoutingTraceContent& trace, std::uint32_t slots, SlotPolicy policy) {
  const std::uint64_t records = std::uint64_t{trace.moe_layers} * trace.experts;
  return replay_slots(trace.visits,
                      {.layers = trace.moe_layers,
                       .experts = trace.experts,
                       .slots = slots,
                       .transit = transit_slots(slots, records, trace.transit_need)},
                      policy);
}

std::string table_of_hits(const RoutingTraceContent& trace, const std::vector<SlotPolicy>& policies,
                          const std::vector<SlotCount>& counts) {
  const std::uint64_t records = std::uint64_t{trace.moe_layers} * trace.experts;
  char cell[64];
  std::string text = "policy     ";
  for (const SlotCount& count : counts) {
    std::snprintf(cell, sizeof cell, "  %18s", (std::to_string(count.of(records)) + " slots").c_str());
    text += cell;
  }
  text += "\n";
  for (const SlotPolicy policy : policies) {
    std::snprintf(cell, sizeof cell, "%-11s", std::string(slot_policy_name(policy)).c_str());
    text += cell;
    for (const SlotCount& count : counts) {
      const ReplayResult result = replay_with(trace, count.of(records), policy);
      const std::uint64_t bytes = (result.demands - result.hits) * trace.record_bytes;
      std::snprintf(cell, sizeof cell, "  %6.1f%% %10s", 100 * result.hit_rate(),
                    format_bytes(bytes).c_str());
      text += cell;
    }
    text += "\n";
  }
  std::snprintf(cell, sizeof cell, "%zu visits", trace.visits.size());
  return text + "\n" + cell + " of " + std::to_string(trace.moe_layers) + " layers with " +
         std::to_string(trace.experts) + " experts, " + std::to_string(trace.rows) +
         " rows; a cell: hit rate, bytes read\n";
}

std::string json_of_hits(const RoutingTraceContent& trace, const std::vector<SlotPolicy>& policies,
                         const std::vector<SlotCount>& counts) {
  const std::uint64_t records = std::uint64_t{trace.moe_layers} * trace.experts;
  std::string text = "{\n  \"visits\": " + std::to_string(trace.visits.size()) + ",\n  \"results\": [";
  bool first = true;
  for (const SlotPolicy policy : policies) {
    for (const SlotCount& count : counts) {
      const ReplayResult result = replay_with(trace, count.of(records), policy);
      text += first ? "\n" : ",\n";
      first = false;
      text +=
          "    {\"policy\": \"" + std::string(slot_policy_name(policy)) +
          "\", \"slots\": " + std::to_string(count.of(records)) +
          ", \"demands\": " + std::to_string(result.demands) + ", \"hits\": " + std::to_string(result.hits) +
          ", \"read_bytes\": " + std::to_string((result.demands - result.hits) * trace.record_bytes) + "}";
    }
  }
  return text + "\n  ]\n}\n";
}

ExitStatus run_replay(const ReplayArguments& arguments, VerbContext& context) {
  const std::vector<SlotCount> counts = read_slots(arguments.slots);
  const std::vector<SlotPolicy> policies = read_policies(arguments.policy);
  const Result<RoutingTraceContent> trace = read_routing_trace(arguments.trace);
  if (!trace) return context.fail(Status(trace.status()).at("replay"));
  if (trace->visits.empty()) {
    return context.fail(
        Status(ErrorCode::invalid_input, "replay: the trace has no visits: " + arguments.trace));
  }
  const std::uint64_t records = std::uint64_t{trace->moe_layers} * trace->experts;
  if (Status fits = check_fits(counts, records); !fits) return context.fail(std::move(fits).at("replay"));
  context.console.print(arguments.json ? json_of_hits(*trace, policies, counts)
                                       : table_of_hits(*trace, policies, counts));
  return ExitStatus::ok;
}

}  // namespace

void add_replay(Verb& program, VerbContext& context) {
  Verb verb =
      program.verb("replay", "Compare policies of keeping experts in memory on a job's routing trace");
  verb.footer(
      "Policies:\n"
      "  lru          one list over all layers; what was used longest ago goes\n"
      "  lfu          one list over all layers; what was used least often goes\n"
      "  pinned       of fetch: what the first visits of each layer choose stays\n"
      "  probability  of fetch, its default: a quota for each layer, ranked by use, with bypass\n"
      "  fixed        the best fixed set of all layers, known beforehand; each of it is read once\n"
      "  belady       knows the future: no policy that starts empty can hit more\n"
      "Those of fetch are what a job hits with one step in flight, one fetch and no hints.\n\n"
      "Examples:\n"
      "  colibri batch model requests.jsonl -o results.jsonl --trace-routing trace.jsonl\n"
      "  colibri replay trace.jsonl --policy all --slots 10,25,50%");
  auto arguments = std::make_shared<ReplayArguments>();
  verb.positional("FILE", arguments->trace, "The routing trace").required();
  std::vector<std::string> names = {"all"};
  for (const SlotPolicy policy : kSlotPolicies) names.emplace_back(slot_policy_name(policy));
  verb.option("--policy", arguments->policy, "Which policy").one_of(names).show_default();
  verb.option("--slots", arguments->slots, "Shares of all records, or numbers of slots")
      .check(check_slots, "LIST")
      .show_default();
  verb.flag("--json", arguments->json, "As one JSON object");
  verb.on_run(context, [arguments, &context] { return run_replay(*arguments, context); });
}

}  // namespace colibri::cli
