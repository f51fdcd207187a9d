// A real control group for a child process: needs root and a writable cgroup file system; says why there is
// none.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace colibri::testing {

inline bool write_value(const std::filesystem::path& file, const std::string& value) {
  std::ofstream stream(file);
  stream << value << std::flush;
  return stream.good();
}

inline std::string read_value(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string value;
  std::getline(stream, value);
  return value;
}

// Where a controller is mounted, and whether by version 2 (all controllers in one tree).
struct Hierarchy {
  std::filesystem::path root;
  bool version2 = false;
};

inline std::optional<Hierarchy> find_hierarchy(const std::string& controller) {
  std::ifstream mounts("/proc/self/mounts");
  std::optional<Hierarchy> found;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, point, type, options;
    words >> device >> point >> type >> options;
    if (type == "cgroup" && ("," + options + ",").find("," + controller + ",") != std::string::npos) {
      return Hierarchy{point, false};
    }
    const std::string controllers =
        " " + read_value(std::filesystem::path(point) / "cgroup.controllers") + " ";
    if (type == "cgroup2" && controllers.find(" " + controller + " ") != std::string::npos) {
      found = Hierarchy{point, true};
    }
  }
  return found;
}

// A group at the root of the hierarchy, removed at the end.
class ControlGroup {
 public:
  explicit ControlGroup(const std::string& controller) {
    if (geteuid() != 0) {
      reason_ = "needs root";
      return;
    }
    const auto hierarchy = find_hierarchy(controller);
    if (!hierarchy) {
      reason_ = "no cgroup file system with the controller " + controller;
      return;
    }
    version2_ = hierarchy->version2;
    if (version2_) write_value(hierarchy->root / "cgroup.subtree_control", "+" + controller);
    path_ = hierarchy->root / ("colibri_test_" + std::to_string(getpid()));
    std::error_code error;
    if (!std::filesystem::create_directory(path_, error)) {
      reason_ = "no control group can be made: " + error.message();
      path_.clear();
    }
  }
  ~ControlGroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  const std::string& reason() const { return reason_; }  // why there is none; empty: there is
  bool version2() const { return version2_; }
  bool set(const std::string& file, const std::string& value) const {
    return write_value(path_ / file, value);
  }
  // All of a file; empty when there is none.
  std::string value(const std::string& file) const {
    std::ifstream stream(path_ / file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  bool enter() const { return write_value(path_ / "cgroup.procs", std::to_string(getpid())); }

 private:
  std::filesystem::path path_;
  bool version2_ = false;
  std::string reason_;
};

}  // namespace colibri::testing
