// cgroup limits from /proc/self/cgroup (which group), /proc/self/mountinfo (where), and the group's files.
#include "topology/cgroup.hpp"

#include <algorithm>
#include <sstream>
#include <vector>

#include "topology/proc_text.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as the largest page-aligned number; nothing real is near it.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;

// Where one hierarchy is mounted, and which part of it.
struct Mount {
  std::string subtree;  // the group that the mount point shows
  std::string point;
  bool version2 = false;
  std::string controllers;  // version 1: super options, "rw,cpu,cpuacct"
};

// Whether a comma-separated list has this name, whole.
bool list_has(std::string_view list, std::string_view name) {
  std::istringstream items{std::string(list)};
  for (std::string item; std::getline(items, item, ',');) {
    if (item == name) return true;
  }
  return false;
}

// mountinfo writes blanks and backslashes in paths as \040 and so on.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<Mount> read_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::istringstream lines{read_proc_text(root.string() + "/proc/self/mountinfo").value_or("")};
  for (std::string line; std::getline(lines, line);) {
    // id parent major:minor subtree point options [tags...] - type source super_options
    std::istringstream words(line);
    std::string id, parent, device, subtree, point, word, type, source, options;
    words >> id >> parent >> device >> subtree >> point;
    // Any number of optional tags stand before the dash.
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    if (type == "cgroup2" || type == "cgroup") {
      mounts.push_back({unescape(subtree), unescape(point), type == "cgroup2", options});
    }
  }
  return mounts;
}

// One group of a hierarchy, from the process's own up to the mounted one.
struct Group {
  std::string name;
  std::string
      files;  // folder, with a slash at its end; no fs::path: appending to one is not safe without memory

  std::string file(std::string_view leaf) const { return files + std::string(leaf); }
};

std::vector<Group> groups_of(const fs::path& root, const Mount& mount, std::string path) {
  // The path of a process outside the mounted subtree says nothing about files that can be seen.
  std::string below;
  if (mount.subtree == "/") {
    below = path;
  } else if (path == mount.subtree || path.starts_with(mount.subtree + "/")) {
    below = path.substr(mount.subtree.size());
  }
  if (below.find("/..") != std::string::npos) below.clear();
  const std::string point = root.string() + "/" + mount.point;
  std::vector<Group> groups;
  for (;;) {
    while (below.ends_with('/')) below.pop_back();
    groups.push_back({below.empty() ? "/" : below, point + "/" + below + "/"});
    if (below.empty()) return groups;
    below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
  }
}

// The groups of the hierarchy that has a controller: version 1 names it, version 2 has them all.
std::vector<Group> find_groups(const fs::path& root, const std::vector<Mount>& mounts,
                               std::string_view controller, bool version2) {
  std::istringstream lines{read_proc_text(root.string() + "/proc/self/cgroup").value_or("")};
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? !controllers.empty() : !list_has(controllers, controller)) continue;
    for (const Mount& mount : mounts) {
      if (mount.version2 != version2 || (!version2 && !list_has(mount.controllers, controller))) continue;
      return groups_of(root, mount, line.substr(second + 1));
    }
  }
  return {};
}

std::optional<std::uint64_t> number_in_file(const std::string& file) {
  const std::optional<std::string> text = read_proc_text(file);
  return text ? leading_number(*text) : std::nullopt;
}

// 0 stands for a quota that is none; a period of 0 would be no limit either.
void tighten_cpu(std::uint64_t quota, std::uint64_t period, const std::string& origin, CgroupLimits& limits) {
  if (quota == 0 || period == 0) return;
  const double cpus = static_cast<double>(quota) / static_cast<double>(period);
  if (limits.cpu_quota != 0 && limits.cpu_quota <= cpus) return;
  limits.cpu_quota = cpus;
  limits.cpu_quota_origin = origin;
}

// Page cache that nobody looked at again lately is given back before a limit hurts; it is not use.
void tighten_memory(const Group& group, std::string_view limit_file, std::string_view use_file,
                    std::string_view cache_key, CgroupLimits& limits) {
  const std::optional<std::uint64_t> limit = number_in_file(group.file(limit_file));
  const std::optional<std::uint64_t> use = number_in_file(group.file(use_file));
  if (!limit || !use || *limit >= kNoLimit) return;
  const std::string stat = read_proc_text(group.file("memory.stat")).value_or("");
  const auto cache_text = line_value(stat, cache_key);
  const std::uint64_t cache = cache_text ? leading_number(*cache_text).value_or(0) : 0;
  const std::uint64_t used = *use - std::min(*use, cache);
  const std::uint64_t free = std::max<std::uint64_t>(*limit - std::min(*limit, used), 1);
  if (limits.memory_limit_free != 0 && limits.memory_limit_free <= free) return;
  limits.memory_limit_free = free;
  limits.memory_limit_origin = "cgroup " + std::string(limit_file) + " of " + group.name;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts = read_mounts(root);
  for (const Group& group : find_groups(root, mounts, "", true)) {
    // "200000 100000" or "max 100000"
    if (const auto text = read_proc_text(group.file("cpu.max"))) {
      const std::size_t blank = std::min(text->find(' '), text->size());
      tighten_cpu(leading_number(*text).value_or(0), leading_number(text->substr(blank)).value_or(100000),
                  "cgroup cpu.max of " + group.name, limits);
    }
    tighten_memory(group, "memory.max", "memory.current", "inactive_file ", limits);
    tighten_memory(group, "memory.high", "memory.current", "inactive_file ",
                   limits);  // throttles instead of killing
  }
  for (const Group& group : find_groups(root, mounts, "cpu", false)) {
    // A quota of -1 is no number here, and no limit.
    tighten_cpu(number_in_file(group.file("cpu.cfs_quota_us")).value_or(0),
                number_in_file(group.file("cpu.cfs_period_us")).value_or(0),
                "cgroup cpu.cfs_quota_us of " + group.name, limits);
  }
  for (const Group& group : find_groups(root, mounts, "memory", false)) {
    tighten_memory(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ", limits);
  }
  return limits;
}

}  // namespace colibri
