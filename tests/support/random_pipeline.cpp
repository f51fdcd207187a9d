#include "tests/support/random_pipeline.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace colibri::testing {
namespace {

class Maker {
 public:
  Maker(std::uint64_t seed, const std::vector<std::uint32_t>& cpus, std::uint32_t experts, std::string taps)
      : random_(seed), cpus_(cpus), experts_(experts), taps_folder_(std::move(taps)) {}

  std::string make() {
    predict_ = chance(70);
    add_stages();
    add_edges();
    std::shuffle(stages_.begin(), stages_.end(), random_);
    std::shuffle(edges_.begin(), edges_.end(), random_);
    std::string text = "# made from a seed\nversion: 1\n";
    if (chance(70)) text += "threads: " + number(1, 4) + "\n";
    text += "memory: {dynamic: " + pick({"8MiB", "16MiB", "64MiB"}) +
            ", experts: " + pick({"min", "25%", "60%", "100%", "300KiB", "auto"}) + "}\n";
    text += steps();
    text += "stages:\n";
    for (const auto& [name, body] : stages_) text += "  " + name + ": {" + body + "}\n";
    text += "edges:\n";
    for (const std::string& edge : edges_) text += edge;
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool chance(unsigned percent) { return below(100) < percent; }
  std::string number(std::uint32_t least, std::uint32_t most) {
    return std::to_string(least + below(most - least + 1));
  }
  std::string pick(const std::vector<std::string>& choices) { return choices[below(choices.size())]; }

  std::string steps() {
    std::string text;
    auto add = [&](const std::string& setting) { text += (text.empty() ? "" : ", ") + setting; };
    // Few rows make many steps, and wave_rows above max_rows is one wave.
    if (chance(80)) add("max_rows: " + pick({"3", "7", "16", "24", "40", "200"}));
    if (chance(80)) add("wave_rows: " + pick({"1", "2", "5", "16", "64"}));
    if (chance(70)) add("in_flight: " + number(1, 3));
    return text.empty() ? "" : "steps: {" + text + "}\n";
  }

  // A stage with some of the experts.
  struct Share {
    std::string name;
    std::string experts;      // as the parameter says it; empty: all
    std::vector<bool> owned;  // [experts]
  };
  static bool share_an_expert(const Share& a, const Share& b) {
    for (std::size_t expert = 0; expert < a.owned.size(); ++expert) {
      if (a.owned[expert] && b.owned[expert]) return true;
    }
    return false;
  }

  // All experts in one to three shares: by residue, or by range with an open end.
  std::vector<Share> shares() {
    const std::uint32_t count = chance(50) ? 1 : 2 + static_cast<std::uint32_t>(below(2));
    const bool by_range = chance(50);
    std::vector<Share> all(count);
    for (std::uint32_t part = 0; part < count; ++part) {
      Share& share = all[part];
      const std::uint32_t begin = experts_ * part / count, end = experts_ * (part + 1) / count;
      if (by_range) {
        share.experts = std::to_string(begin) + "-" + (part + 1 == count ? "" : std::to_string(end - 1));
      } else {
        share.experts = std::to_string(part) + "/" + std::to_string(count);
      }
      for (std::uint32_t expert = 0; expert < experts_; ++expert)
        share.owned.push_back(by_range ? expert >= begin && expert < end : expert % count == part);
    }
    if (count == 1 && chance(70)) all[0].experts.clear();
    return all;
  }

  // A name that is no kind's, so that nothing can go by it.
  std::string add_stage(const std::string& kind, const std::string& params) {
    const std::string name = pick({"a", "node_", "x_y", "stage"}) +
                             std::to_string(stages_.size() * 7 + below(7)) + (chance(50) ? "_" + kind : "");
    names_[kind] = name;
    std::string body = "kind: " + kind + params;
    if (chance(25)) body += ", workers: " + number(1, 3);
    if (!cpus_.empty() && chance(15)) {
      body += ", cpus: [" + std::to_string(cpus_[below(cpus_.size())]) + "]";
    } else if (chance(8)) {
      body += ", numa_node: 0";
    }
    stages_.emplace_back(name, body);
    return name;
  }

  std::string fetch_params() {
    std::string text;
    if (chance(50)) text += ", backend: " + pick({"auto", "pread", "io_uring"});
    if (chance(30)) text += ", direct: " + pick({"auto", "off"});
    if (chance(40)) text += ", lanes: " + pick({"1", "2", "16", "auto"});
    if (chance(30)) text += ", read_bytes: " + pick({"4KiB", "8KiB", "1MiB"});
    if (chance(30)) text += ", inflight_bytes: " + pick({"4KiB", "100KiB", "64MiB"});
    if (chance(20)) text += ", hints: false";
    return text;
  }

  std::string transfer_params() {
    return chance(50) ? ", mode: " + pick({"copy", "handover"}) + ", staging: " + number(1, 5) : "";
  }

  void add_shares(const std::string& kind, std::vector<Share>& all, std::string (Maker::*params)()) {
    for (Share& share : all) {
      const std::string experts = share.experts.empty() ? "" : ", experts: " + share.experts;
      share.name = add_stage(kind, (params == nullptr ? "" : (this->*params)()) + experts);
    }
  }

  void add_stages() {
    add_stage("read", "");
    add_stage("admit", chance(50) ? ", waiting: " + pick({"1", "3", "auto", "1000"}) : "");
    for (const char* kind : {"embed", "attend", "route", "combine", "sample"}) add_stage(kind, "");
    if (predict_) add_stage("predict", chance(30) ? ", method: none" : "");
    fetches_ = shares();
    transfers_ = shares();
    computes_ = shares();
    add_shares("fetch", fetches_, &Maker::fetch_params);
    add_shares("transfer", transfers_, &Maker::transfer_params);
    add_shares("compute", computes_, nullptr);
    add_stage("write", chance(40) ? ", flush_seconds: " + pick({"0", "0.05", "3"}) : "");
  }

  void add_edge(const std::string& from, const std::string& to, std::uint32_t most = 0) {
    // On cycles a capacity holds all that circulates: far more than small steps need, or auto.
    std::string capacity;
    if (most > 0 && chance(60)) capacity = ", capacity: " + number(1, most);
    if (most == 0 && chance(25)) capacity = ", capacity: " + pick({"9000", "20000", "65534", "auto"});
    edges_.push_back("  - {from: " + from + ", to: " + to + capacity + "}\n");
  }
  std::string port(const std::string& kind, const std::string& name) { return names_.at(kind) + "." + name; }

  // Between them no tap, one, or two in a row. Hidden states can be written anywhere; `what`: routes too?
  void add_wave_edge(std::string from, const std::string& to, const std::string& what) {
    for (std::size_t taps = taps_folder_.empty() || chance(60) ? 0 : 1 + below(2); taps > 0; --taps) {
      const std::string file = taps_folder_ + "/tap" + std::to_string(stages_.size());
      const std::string name = add_stage("tap", ", what: " + pick({"hidden", what}) + ", file: " + file);
      add_edge(from, name + ".waves");
      from = name + ".waves";
    }
    add_edge(from, to);
  }

  void add_edges() {
    add_edge(port("read", "requests"), port("admit", "requests"), 5);
    add_edge(port("admit", "waves"), port("embed", "waves"));
    add_edge(port("embed", "waves"), port("attend", "fresh"));
    add_wave_edge(port("attend", "routed"), port("route", "waves"), "hidden");
    add_wave_edge(port("route", "waves"), port("combine", "waves"), "routes");
    add_wave_edge(port("combine", "next_layer"), port("attend", "looping"), "routes");
    add_edge(port("attend", "finished"), port("sample", "waves"));
    add_edge(port("sample", "done"), port("admit", "done"));
    add_edge(port("sample", "outcomes"), port("write", "outcomes"), 3);
    add_edge(port("admit", "outcomes"), port("write", "outcomes"), 3);
    add_expert_edges();
    if (!predict_) return;
    add_edge(port("route", "residual"), port("predict", "residual"));
    // Hints pass all stages that read, in any order.
    std::vector<Share> chain = fetches_;
    std::shuffle(chain.begin(), chain.end(), random_);
    add_edge(port("predict", "hints"), chain.front().name + ".hints");
    for (std::size_t i = 1; i < chain.size(); ++i)
      add_edge(chain[i - 1].name + ".spent", chain[i].name + ".hints");
    add_edge(chain.back().name + ".spent", port("route", "spent"));
  }

  // Between all stages that have an expert in common.
  void add_expert_edges() {
    for (const Share& fetch : fetches_) {
      add_edge(port("route", "demand"), fetch.name + ".demand");
      for (const Share& transfer : transfers_) {
        if (!share_an_expert(fetch, transfer)) continue;
        add_edge(fetch.name + ".experts", transfer.name + ".experts");
        add_edge(transfer.name + ".released", fetch.name + ".released");
      }
    }
    for (const Share& compute : computes_) {
      add_edge(port("route", "visits"), compute.name + ".visits");
      add_edge(compute.name + ".done", port("combine", "done"));
      for (const Share& transfer : transfers_) {
        if (!share_an_expert(transfer, compute)) continue;
        add_edge(transfer.name + ".experts", compute.name + ".experts");
        add_edge(compute.name + ".released", transfer.name + ".released");
      }
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::uint32_t>& cpus_;
  const std::uint32_t experts_;
  const std::string taps_folder_;
  bool predict_ = false;
  std::vector<Share> fetches_, transfers_, computes_;
  std::map<std::string, std::string> names_;                 // by kind
  std::vector<std::pair<std::string, std::string>> stages_;  // name, what it is
  std::vector<std::string> edges_;
};

// Where lines, or tokens, begin and end.
using Pieces = std::vector<std::pair<std::size_t, std::size_t>>;

Pieces lines_of(const std::string& text) {
  Pieces pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    pieces.emplace_back(begin, end);
    begin = end;
  }
  return pieces;
}

Pieces tokens_of(const std::string& text) {
  auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  Pieces pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (is_word(text[begin]) && end < text.size() && is_word(text[end])) ++end;
    if (text[begin] != ' ' && text[begin] != '\n') pieces.emplace_back(begin, end);
    begin = end;
  }
  return pieces;
}

}  // namespace

std::string random_pipeline(std::uint64_t seed, const std::vector<std::uint32_t>& cpus, std::uint32_t experts,
                            const std::string& taps_folder) {
  return Maker(seed, cpus, experts, taps_folder).make();
}

std::string mutated(const std::string& original, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text = original;
  for (std::size_t edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
    if (random() % 4 == 0) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
      continue;
    }
    const Pieces pieces = random() % 2 == 0 ? lines_of(text) : tokens_of(text);
    if (pieces.size() < 2) break;
    auto first = pieces[random() % pieces.size()], second = pieces[random() % pieces.size()];
    if (second < first) std::swap(first, second);
    const std::string one = text.substr(first.first, first.second - first.first);
    const std::string two = text.substr(second.first, second.second - second.first);
    switch (random() % 4) {
      case 0: text.erase(first.first, one.size()); break;
      case 1: text.insert(first.first, one); break;
      case 2: text.replace(first.first, one.size(), two); break;
      default:  // the later one first: it moves the other
        text.replace(second.first, two.size(), one);
        text.replace(first.first, one.size(), two);
        break;
    }
  }
  return text;
}

}  // namespace colibri::testing
