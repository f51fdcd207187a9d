// LiveParameters: the values of parameters that may change while a pipeline runs (ParamInfo::while_running).
//
// One cell a stage and parameter, an atomic word: hosts set it from any thread, stages read it at each use.
// The cells outlive pipelines, so that a value also holds for the jobs that follow.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

class LiveParameters {
 public:
  class Cell {
   public:
    // The value of `text`, which was checked.
    Cell(const ParamInfo& info, std::string_view text);
    const ParamInfo& info() const noexcept { return *info_; }
    ParamValue get() const noexcept;
    // The error is that of read_param.
    Status set(std::string_view text);

   private:
    const ParamInfo* info_;
    std::vector<std::string_view> choices_;
    std::atomic<std::uint64_t> word_{0};
  };

  // Parts of the spec's stages are named by reference: it must outlive this.
  LiveParameters(const PipelineSpec& spec, StageInfos kinds);

  // Path "stages.fetch.hints". Not ok, by name and with what to do, for a path that leads to no parameter, a
  // parameter that may not change, and a value that it does not take. Thread-safe.
  Status set(std::string_view path, std::string_view value);
  // Null: the parameter has the value of the spec.
  const Cell* find(std::string_view stage, std::string_view param) const noexcept;

 private:
  struct Stage {
    std::string_view name;
    const StageInfo* info = nullptr;
    std::deque<Cell> cells;
  };
  Status set_in_stage(Stage& stage, std::string_view path, std::string_view param, std::string_view value);

  std::deque<Stage> stages_;  // atomics do not move
};

}  // namespace colibri
