// check_partitions: behind every output that is by_expert, each expert has one stage.
//
// Outputs that lead to the same stages have the same mistakes: each is reported once. Before
// the model is known, two stages that have one expert are found for every id there may be, and
// ids without a stage up to the largest one that is named; the model's number tells the rest.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "topology/cpu_list.hpp"
#include "topology/expert_partition.hpp"
#include "topology/pipeline_graph.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

constexpr std::string_view kParam = "experts";

// "expert 4" or "experts 0-3,8,...": long lists are cut.
std::string experts_text(const std::vector<std::uint32_t>& ascending) {
  constexpr std::size_t kMaximumLength = 40;
  std::string ids = format_cpu_list(ascending);
  if (ids.size() > kMaximumLength) ids = ids.substr(0, ids.rfind(',', kMaximumLength)) + ",...";
  return (ascending.size() == 1 ? "expert " : "experts ") + ids;
}

class PartitionChecker {
 public:
  PartitionChecker(const PipelineSpec& spec, StageInfos kinds, std::uint32_t num_experts,
                   PipelineProblems& problems)
      : spec_(spec), graph_(resolve_pipeline(spec, kinds)), num_experts_(num_experts), problems_(problems) {}

  void check() {
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) read_partition(i);
    // Edges of each by_expert output, in the order of the outputs.
    std::map<std::pair<int, int>, std::vector<std::size_t>> outputs;
    for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
      const ResolvedEdge& edge = graph_.edges[i];
      if (!edge.complete() || !graph_.output(edge).by_expert) continue;
      outputs[{edge.from_stage, edge.from_port}].push_back(i);
    }
    for (const auto& [output, edges] : outputs) check_output(edges);
  }

 private:
  // nullopt: what the stage has cannot be read, so nothing is said about it.
  void read_partition(std::size_t stage) {
    const StageSpec& spec = spec_.stages[stage];
    partitions_.emplace_back();
    has_.emplace_back(kExpertIdLimit, true);
    if (graph_.infos[stage] == nullptr) return;
    partitions_.back() = ExpertPartition();
    if (!graph_.infos[stage]->partitioned) return;
    const std::string_view text = effective_param(spec, *graph_.infos[stage], kParam);
    const Result<ExpertPartition> read = ExpertPartition::parse(text);
    if (!read) {
      // The same line as when the file was read counts once; of a value that is no list nothing was kept.
      if (!text.empty() || problems_.lines.empty()) {
        problems_.add(origin_of(stage), path_of(stage), read.status().message());
      }
      partitions_.back().reset();
      return;
    }
    partitions_.back() = *read;
    for (std::uint32_t expert = 0; expert < kExpertIdLimit; ++expert)
      has_[stage][expert] = read->contains(expert);
    if (num_experts_ == 0) return;
    std::uint32_t expert = 0;
    while (expert < num_experts_ && !has_[stage][expert]) ++expert;
    if (expert == num_experts_) {
      problems_.add(origin_of(stage), path_of(stage),
                    quote_value(read->text()) + " has none of the " + std::to_string(num_experts_) +
                        " experts of this model; expected at least one of 0-" +
                        std::to_string(num_experts_ - 1));
    }
  }

  Origin origin_of(std::size_t stage) const {
    const auto given = spec_.stages[stage].params.find(std::string(kParam));
    return given == spec_.stages[stage].params.end() ? spec_.stages[stage].origin : given->second.second;
  }
  std::string path_of(std::size_t stage) const {
    return "stages." + spec_.stages[stage].name + "." + std::string(kParam);
  }
  std::size_t consumer(std::size_t edge) const {
    return static_cast<std::size_t>(graph_.edges[edge].to_stage);
  }

  void check_output(const std::vector<std::size_t>& edges) {
    const std::string output = spec_.edges[edges[0]].from_stage + "." + spec_.edges[edges[0]].from_port;
    const auto producer = static_cast<std::size_t>(graph_.edges[edges[0]].from_stage);
    const std::optional<ExpertPartition>& sent = partitions_[producer];
    bool readable = sent.has_value();
    std::set<std::size_t> consumers;
    for (const std::size_t edge : edges) {
      readable = readable && partitions_[consumer(edge)].has_value();
      if (consumers.insert(consumer(edge)).second) continue;
      problems_.add(spec_.edges[edge].from_origin, "edges[" + std::to_string(edge) + "].from",
                    "output " + output + " is connected twice to stage " + spec_.edges[edge].to_stage +
                        "; expected one edge to each stage");
      readable = false;
    }
    if (!readable) return;
    std::uint32_t named = sent->largest_named();
    for (const std::size_t stage : consumers) named = std::max(named, partitions_[stage]->largest_named());
    const std::uint32_t end = num_experts_ > 0 ? std::min(num_experts_, kExpertIdLimit) : kExpertIdLimit;
    std::vector<std::uint32_t> missing;
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::uint32_t>> shared;  // by their order
    for (std::uint32_t expert = 0; expert < end; ++expert) {
      if (!has_[producer][expert]) continue;
      std::optional<std::size_t> first;
      for (const std::size_t edge : edges) {
        if (!has_[consumer(edge)][expert]) continue;
        if (first) {
          shared[std::minmax(*first, consumer(edge))].push_back(expert);
        } else {
          first = consumer(edge);
        }
      }
      if (!first && (num_experts_ > 0 || expert <= named)) missing.push_back(expert);
    }
    for (const auto& [pair, experts] : shared) {
      if (!shared_reported_.insert(pair).second) continue;
      problems_.add(origin_of(pair.second), path_of(pair.second),
                    experts_text(experts) + (experts.size() == 1 ? " belongs" : " belong") + " to stage " +
                        spec_.stages[pair.first].name + " too, and " + output +
                        " leads to both; expected each expert in one of them");
    }
    if (missing.empty() || !missing_reported_.insert(consumers).second) return;
    problems_.add(spec_.edges[edges[0]].from_origin, "edges[" + std::to_string(edges[0]) + "].from",
                  "output " + output + " leads to no stage for " + experts_text(missing) +
                      (num_experts_ > 0 ? " of 0-" + std::to_string(num_experts_ - 1) : "") + ": " +
                      parts_text(edges) + "; expected each expert in one stage");
  }

  // "a has '0-3', b has '5'"
  std::string parts_text(const std::vector<std::size_t>& edges) const {
    constexpr std::size_t kMaximumParts = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(edges.size(), kMaximumParts); ++i) {
      text += (i > 0 ? ", " : "") + spec_.stages[consumer(edges[i])].name + " has " +
              quote_value(partitions_[consumer(edges[i])]->text());
    }
    return edges.size() > kMaximumParts ? text + ", ..." : text;
  }

  const PipelineSpec& spec_;
  const PipelineGraph graph_;
  const std::uint32_t num_experts_;  // 0: not known yet
  PipelineProblems& problems_;
  std::vector<std::optional<ExpertPartition>> partitions_;  // [stages]
  std::vector<std::vector<bool>> has_;  // [stages][ids] the same, spelt out: files may be hostile
  std::set<std::pair<std::size_t, std::size_t>> shared_reported_;
  std::set<std::set<std::size_t>> missing_reported_;
};

}  // namespace

void check_partitions(const PipelineSpec& spec, StageInfos kinds, std::uint32_t num_experts,
                      PipelineProblems& problems) {
  PartitionChecker(spec, kinds, num_experts, problems).check();
}

}  // namespace colibri
