// The plan for people: what the machine has, which stages share which CPUs, where memory lies.
#include <algorithm>
#include <map>
#include <set>

#include "topology/cpu_list.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/placement.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kWidestCell = 44;

// Lines of at most kWidestCell, broken at blanks; a longer word keeps its length.
Row wrapped(std::string_view text) {
  Row lines;
  while (text.size() > kWidestCell) {
    std::size_t blank = text.rfind(' ', kWidestCell);
    if (blank == std::string_view::npos) blank = text.find(' ');
    if (blank == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, blank));
    text.remove_prefix(blank + 1);
  }
  lines.emplace_back(text);
  return lines;
}

// Rows of equal length. Columns as wide as their widest line, two blanks between; the last one is ragged.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (const std::string& line : wrapped(row[i])) widths[i] = std::max(widths[i], line.size());
    }
  }
  std::string out;
  for (const Row& row : rows) {
    std::vector<Row> cells;
    for (const std::string& cell : row) cells.push_back(wrapped(cell));
    cells.back() = {row.back()};
    const auto tallest = std::max_element(cells.begin(), cells.end(),
                                          [](const Row& a, const Row& b) { return a.size() < b.size(); });
    for (std::size_t line = 0; line < tallest->size(); ++line) {
      std::string text;
      for (std::size_t i = 0, begin = 0; i < cells.size(); begin += widths[i++] + 2) {
        if (line >= cells[i].size()) continue;
        text.resize(begin, ' ');
        text += cells[i][line];
      }
      out += text + "\n";
    }
  }
  return out;
}

std::string machine_text(const Machine& machine) {
  std::set<std::uint32_t> packages;
  for (const Core& core : machine.cores) packages.insert(core.package);
  std::string out = machine.name + ": ";
  if (!machine.cores.empty()) {
    out += counted(packages.size(), "package") + ", " + counted(machine.cores.size(), "core") + ", ";
  }
  out += counted(machine.cpus.size(), "CPU") + ", " + counted(machine.nodes.size(), "NUMA node");
  if (machine.cpu_quota > 0) {
    out += "; CPU quota " + number_text(machine.cpu_quota) + " (" + machine.cpu_quota_origin + ")";
  }
  out += "\n";
  for (const NumaNode& node : machine.nodes) {
    out += "  node " + std::to_string(node.index) + ": " +
           (node.cpus.empty() ? "no CPUs" : "CPUs " + format_cpu_list(node.cpus));
    if (node.memory_bytes > 0) out += ", " + format_bytes(node.memory_bytes);
    for (const Device& device : machine.devices) {
      if (device.node != node.index) continue;
      out += (device.kind == Device::Kind::drive ? ", drive " : ", GPU ") + device.name;
    }
    out += "\n";
  }
  // Caches of a level are alike on nearly every machine: the first stands for all.
  std::string caches;
  for (const Cache& cache : machine.caches) {
    const std::string level = "L" + std::to_string(cache.level) + " ";
    if (caches.find(level) != std::string::npos) continue;
    caches += (caches.empty() ? "  caches: " : ", ") + level + format_bytes(cache.bytes) + " for " +
              counted(cache.cpus.size(), "CPU");
  }
  return caches.empty() ? out : out + caches + "\n";
}

std::string list_or(const std::vector<std::uint32_t>& list, std::string_view otherwise) {
  return list.empty() ? std::string(otherwise) : format_cpu_list(list);
}

std::string join(const Row& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

Row memory_row(std::string memory, const MemoryBinding& binding) {
  return {std::move(memory), list_or(binding.nodes, "any"), binding.reason};
}

}  // namespace

std::string placement_table(const PipelineSpec& spec, StageInfos kinds, const Machine& machine,
                            const PlacementPlan& plan) {
  std::vector<Row> rows = {{"placement", "node", "cpus", "threads", "stages", "why"}};
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    const PlannedPlacement& placement = plan.placements[i];
    Row stages;
    for (std::size_t stage = 0; stage < spec.stages.size(); ++stage) {
      if (plan.placement_of_stage[stage] == i) stages.push_back(spec.stages[stage].name);
    }
    rows.push_back({placement.name, placement.node ? std::to_string(*placement.node) : "any",
                    list_or(placement.cpus, "any"), std::to_string(placement.threads), join(stages),
                    placement.reason});
  }
  std::vector<Row> memory = {{"memory", "nodes", "why"},
                             memory_row("dense weights", plan.dense),
                             memory_row("KV pages", plan.kv),
                             memory_row("steps", plan.steps)};
  // Stages whose own memory lies alike share a row.
  std::map<std::vector<std::uint32_t>, Row> own;
  for (std::size_t i = 0; i < spec.stages.size(); ++i) {
    const MemoryBinding& binding = plan.memory_of_stage[i];
    const StageInfo* info = find_kind(kinds, spec.stages[i].kind);
    if (info != nullptr && info->memory.slots) {
      memory.push_back(memory_row("slots of " + spec.stages[i].name, binding));
    }
    own[binding.nodes].push_back(spec.stages[i].name);
  }
  for (const auto& [nodes, stages] : own) {
    memory.push_back({"scratch of " + (stages.size() == spec.stages.size() ? "all stages" : join(stages)),
                      list_or(nodes, "any"), plan.memory_of_stage.front().reason});
  }
  return machine_text(machine) + (plan.note.empty() ? "" : plan.note + "\n") + "\n" + aligned(rows) + "\n" +
         aligned(memory);
}

}  // namespace colibri
