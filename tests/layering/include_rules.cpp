// The layers, and the owners of third-party headers, as tables.
#include "tests/layering/include_rules.hpp"

#include <algorithm>
#include <iterator>

namespace colibri::layering {
namespace {

// From the top down: a folder may include itself and those after it.
constexpr std::string_view kLayers[] = {"runtime", "stages", "topology", "io", "kernels"};

struct Owner {
  std::string_view prefix;  // of the included name
  std::string_view place;   // a folder or a file; a prefix may have several
};
// The longest prefix that fits counts: boost/asio and boost/lockfree have different owners.
// CLI11 takes longer to compile than any verb: verbs use runtime/cli/verb_flags.hpp.
constexpr Owner kOwners[] = {
    {"tbb/", "runtime"},
    {"oneapi/", "runtime"},
    {"boost/lockfree/", "runtime"},
    {"CLI/", "runtime/cli/verb_flags.cpp"},
    {"CLI/", "runtime/cli/command_line.cpp"},
    {"CLI/", "runtime/cli/pages/command_tree.cpp"},
    {"spdlog/", "runtime/cli"},
    {"fmt/", "runtime/cli"},
    {"hwloc", "topology"},
    {"numa.h", "topology"},
    {"numaif.h", "topology"},
    {"yaml-cpp/", "topology"},
    {"boost/", "io"},
    {"liburing", "io"},
    {"nlohmann/", "io"},
    {"pcre2", "io"},
    {"utf8proc", "io"},
    {"xxhash", "io"},
    {"xxh3", "io"},
    {"openssl/", "io"},
    {"cuda", "kernels/cuda"},
    {"cublas", "kernels/cuda"},
    {"nvtx", "kernels/cuda"},
    {"boost/lockfree.", "runtime"},
};

constexpr std::string_view kBlanks = " \t";

std::string_view layer_of(std::string_view path) {
  for (const std::string_view layer : kLayers) {
    if (path.size() > layer.size() && path.starts_with(layer) && path[layer.size()] == '/') return layer;
  }
  return {};
}

std::size_t rank_of(std::string_view layer) {
  return static_cast<std::size_t>(std::find(std::begin(kLayers), std::end(kLayers), layer) -
                                  std::begin(kLayers));
}

bool inside(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// The name between quotes or angles; empty when the line includes nothing.
std::string_view included_name(std::string_view line, bool& angles) {
  const auto skip = [&] { line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size())); };
  skip();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip();
  if (!line.starts_with("include")) return {};
  line.remove_prefix(std::string_view("include").size());
  skip();
  if (line.empty() || (line.front() != '"' && line.front() != '<')) return {};
  angles = line.front() == '<';
  line.remove_prefix(1);
  return line.substr(0, line.find(angles ? '>' : '"'));
}

// The longest prefix of `name` that has an owner; empty: none.
std::string_view owned_prefix(std::string_view name) {
  std::string_view longest;
  for (const Owner& owner : kOwners) {
    if (name.starts_with(owner.prefix) && owner.prefix.size() > longest.size()) longest = owner.prefix;
  }
  return longest;
}

// What is wrong with `path` including `name`, whose owners are those of `prefix`.
std::string check_owners(std::string_view path, std::string_view name, std::string_view prefix) {
  std::string places;
  for (const Owner& owner : kOwners) {
    if (owner.prefix != prefix) continue;
    if (path == owner.place || inside(path, owner.place)) return {};
    places.append(places.empty() ? "" : ", ").append(owner.place);
  }
  return std::string(name) + " may be included in " + places + " only";
}

}  // namespace

std::string check_include(std::string_view path, std::string_view line,
                          const std::set<std::string, std::less<>>& stage_headers) {
  bool angles = false;
  const std::string_view name = included_name(line, angles);
  const std::string_view layer = layer_of(path);
  if (name.empty() || layer.empty()) return {};

  std::string_view target = layer_of(name);
  if (name.starts_with("colibri/")) {
    const std::string_view header = name.substr(std::string_view("colibri/").size());
    target = stage_headers.contains(header) ? "stages" : "runtime";
  }
  if (!target.empty()) {
    if (rank_of(target) >= rank_of(layer)) return {};
    return std::string(layer) + " includes " + std::string(name) + " of " + std::string(target) +
           ", which is a layer above it";
  }
  if (inside(name, "tests") || inside(name, "bench")) {
    return std::string(layer) + " includes " + std::string(name) + ", which is no part of the library";
  }

  const std::string_view prefix = owned_prefix(name);
  if (!prefix.empty()) return check_owners(path, name, prefix);
  if (angles && name.ends_with(".hpp")) {
    return std::string(name) +
           " is of a library that no folder owns yet: decide which, and add it to the owners";
  }
  if (!angles) {
    return std::string(name) + " is not written from the project root";
  }
  return {};
}

bool collects_by_pattern(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const std::size_t at = line.find("GLOB");
  if (at == std::string_view::npos) return false;
  // GLOB or GLOB_RECURSE as a word: not GLOBAL.
  const std::string_view after = line.substr(at + 4);
  const bool word =
      after.empty() || after.starts_with("_RECURSE") || kBlanks.find(after.front()) != kBlanks.npos;
  return word && (at == 0 || line[at - 1] == '(' || kBlanks.find(line[at - 1]) != kBlanks.npos);
}

}  // namespace colibri::layering
