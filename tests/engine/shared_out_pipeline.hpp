// Pipelines whose experts are shared out between several stages of a kind, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/expert_partition.hpp"

namespace colibri::testing {

// One stage of a partitioned kind: its part of the experts, and more parameters (", workers: 1").
struct SharedStage {
  std::string experts;
  std::string more = {};
};

struct SharedOut {
  std::string name;
  std::vector<SharedStage> fetch, transfer, compute;
  bool predict = true;
};

// The stages' experts have an id below 64 in common: only then is there an edge between them.
inline bool overlap(const SharedStage& a, const SharedStage& b) {
  const ExpertPartition first = ExpertPartition::parse(a.experts).value();
  const ExpertPartition second = ExpertPartition::parse(b.experts).value();
  for (std::uint32_t expert = 0; expert < 64; ++expert) {
    if (first.contains(expert) && second.contains(expert)) return true;
  }
  return false;
}

// The built-in pipeline with these stages in place of one fetch, transfer and compute.
inline std::string shared_out_yaml(const SharedOut& shape) {
  std::string text = "version: 1\nstages:\n";
  for (const std::string kind : {"read", "admit", "embed", "attend", "route", "predict"}) {
    if (shape.predict || kind != "predict") text += "  " + kind + ": {kind: " + kind + "}\n";
  }
  const auto name = [](std::string_view kind, std::size_t i) {
    return std::string(kind) + std::to_string(i);
  };
  const auto stages = [&](std::string_view kind, const std::vector<SharedStage>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      text += "  " + name(kind, i) + ": {kind: " + std::string(kind) + ", experts: \"" + list[i].experts +
              "\"" + list[i].more + "}\n";
    }
  };
  stages("fetch", shape.fetch);
  stages("transfer", shape.transfer);
  stages("compute", shape.compute);
  for (const char* kind : {"combine", "sample", "write"})
    text += "  " + std::string(kind) + ": {kind: " + kind + "}\n";
  text += "edges:\n";
  const auto edge = [&](const std::string& from, const std::string& to) {
    text += "  - {from: " + from + ", to: " + to + "}\n";
  };
  edge("read.requests", "admit.requests");
  edge("admit.waves", "embed.waves");
  edge("embed.waves", "attend.fresh");
  edge("attend.routed", "route.waves");
  edge("route.waves", "combine.waves");
  edge("combine.next_layer", "attend.looping");
  edge("attend.finished", "sample.waves");
  edge("sample.done", "admit.done");
  if (shape.predict) edge("route.residual", "predict.residual");
  edge("sample.outcomes", "write.outcomes");
  edge("admit.outcomes", "write.outcomes");
  std::string hints = "predict.hints";  // they pass all fetches
  for (std::size_t i = 0; i < shape.fetch.size(); ++i) {
    edge("route.demand", name("fetch", i) + ".demand");
    if (shape.predict) edge(hints, name("fetch", i) + ".hints");
    hints = name("fetch", i) + ".spent";
    for (std::size_t j = 0; j < shape.transfer.size(); ++j) {
      if (!overlap(shape.fetch[i], shape.transfer[j])) continue;
      edge(name("fetch", i) + ".experts", name("transfer", j) + ".experts");
      edge(name("transfer", j) + ".released", name("fetch", i) + ".released");
    }
  }
  if (shape.predict) edge(hints, "route.spent");
  for (std::size_t i = 0; i < shape.compute.size(); ++i) {
    edge("route.visits", name("compute", i) + ".visits");
    edge(name("compute", i) + ".done", "combine.done");
    for (std::size_t j = 0; j < shape.transfer.size(); ++j) {
      if (!overlap(shape.compute[i], shape.transfer[j])) continue;
      edge(name("transfer", j) + ".experts", name("compute", i) + ".experts");
      edge(name("compute", i) + ".released", name("transfer", j) + ".released");
    }
  }
  return text;
}

}  // namespace colibri::testing
