// Experiments that show what a parameter does: two values, and something to look at that differs. What is
// looked at is counted or read, never timed.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace colibri::testing {

struct Experiment {
  std::string path;  // "fetch.lanes" of a kind, "*.workers" of every kind, "memory.experts" of a setting
  std::string first, second;  // two values of it
  // What is seen under a value. The same value shows the same; an empty text: it cannot be seen here,
  // skipped.
  std::function<std::string(const std::string& value)> observe;
};

// What gtest prints of it.
inline void PrintTo(const Experiment& experiment, std::ostream* out) { *out << experiment.path; }

std::vector<Experiment> read_experiments();      // parameters of fetch and transfer
std::vector<Experiment> schedule_experiments();  // of the other stages, and those of every stage
std::vector<Experiment> setting_experiments();

}  // namespace colibri::testing
