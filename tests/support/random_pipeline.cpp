#include "tests/support/random_pipeline.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace colibri::testing {
namespace {

class Maker {
 public:
  Maker(std::uint64_t seed, const std::vector<std::uint32_t>& cpus) : random_(seed), cpus_(cpus) {}

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

  // A name that is no kind's, so that nothing can go by it.
  void add_stage(const std::string& kind, const std::string& params) {
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
  }

  void add_stages() {
    add_stage("read", "");
    add_stage("admit", chance(50) ? ", waiting: " + pick({"1", "3", "auto", "1000"}) : "");
    for (const char* kind : {"embed", "attend", "route", "combine", "sample"}) add_stage(kind, "");
    if (predict_) add_stage("predict", chance(30) ? ", method: none" : "");
    std::string fetch;
    if (chance(50)) fetch += ", backend: " + pick({"auto", "pread", "io_uring"});
    if (chance(30)) fetch += ", direct: " + pick({"auto", "off"});
    if (chance(40)) fetch += ", lanes: " + pick({"1", "2", "16", "auto"});
    if (chance(30)) fetch += ", read_bytes: " + pick({"4KiB", "8KiB", "1MiB"});
    if (chance(30)) fetch += ", inflight_bytes: " + pick({"4KiB", "100KiB", "64MiB"});
    if (chance(20)) fetch += ", hints: false";
    const std::string transfer =
        chance(50) ? ", mode: " + pick({"copy", "handover"}) + ", staging: " + number(1, 5) : "";
    add_stage("fetch", fetch);
    add_stage("transfer", transfer);
    add_stage("compute", "");
    add_stage("write", chance(40) ? ", flush_seconds: " + pick({"0", "0.05", "3"}) : "");
  }

  void add_edge(const std::string& from, const std::string& out, const std::string& to, const std::string& in,
                std::uint32_t most = 0) {
    // On cycles a capacity holds all that circulates: far more than small steps need, or auto.
    std::string capacity;
    if (most > 0 && chance(60)) capacity = ", capacity: " + number(1, most);
    if (most == 0 && chance(25)) capacity = ", capacity: " + pick({"9000", "20000", "65534", "auto"});
    const std::string ends = "from: " + names_.at(from) + "." + out + ", to: " + names_.at(to) + "." + in;
    edges_.push_back("  - {" + ends + capacity + "}\n");
  }

  void add_edges() {
    add_edge("read", "requests", "admit", "requests", 5);
    add_edge("admit", "waves", "embed", "waves");
    add_edge("embed", "waves", "attend", "fresh");
    add_edge("attend", "routed", "route", "waves");
    add_edge("route", "waves", "combine", "waves");
    add_edge("combine", "next_layer", "attend", "looping");
    add_edge("attend", "finished", "sample", "waves");
    add_edge("sample", "done", "admit", "done");
    add_edge("sample", "outcomes", "write", "outcomes", 3);
    add_edge("admit", "outcomes", "write", "outcomes", 3);
    add_edge("route", "demand", "fetch", "demand");
    add_edge("route", "visits", "compute", "visits");
    add_edge("fetch", "experts", "transfer", "experts");
    add_edge("transfer", "experts", "compute", "experts");
    add_edge("compute", "done", "combine", "done");
    add_edge("compute", "released", "transfer", "released");
    add_edge("transfer", "released", "fetch", "released");
    if (!predict_) return;
    add_edge("route", "residual", "predict", "residual");
    add_edge("predict", "hints", "fetch", "hints");
    add_edge("fetch", "spent", "route", "spent");
  }

  std::mt19937_64 random_;
  const std::vector<std::uint32_t>& cpus_;
  bool predict_ = false;
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

std::string random_pipeline(std::uint64_t seed, const std::vector<std::uint32_t>& cpus) {
  return Maker(seed, cpus).make();
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
