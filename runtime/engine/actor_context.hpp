// ActorContext: what a stage sees of the runtime. Parameters, memory, counters, threads.
#pragma once

#include <colibri/services.hpp>
#include <colibri/stage.hpp>
#include <deque>
#include <string>

#include "runtime/engine/executor.hpp"
#include "runtime/engine/live_parameters.hpp"
#include "topology/expert_partition.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

class Actor;

class ActorContext final : public StageContext {
 public:
  // Everything passed must outlive the context. The spec was checked: parameters have valid texts.
  // instance: index among the stages of its kind. live: null when no parameter changes.
  ActorContext(const StageSpec& spec, const StageInfo& info, std::uint32_t instance, const Services& services,
               std::span<std::byte> memory, Executor& executor, std::uint32_t workers,
               CompletionPort& completions, const LiveParameters* live);

  std::string_view name() const override { return spec_.name; }
  const Services& services() const override { return services_; }
  std::uint32_t instance() const override { return instance_; }
  bool owns(std::uint32_t expert) const override { return experts_.contains(expert); }
  std::uint64_t integer(std::string_view param) const override;
  double number(std::string_view param) const override;
  bool boolean(std::string_view param) const override;
  std::string_view text(std::string_view param) const override;
  bool is_auto(std::string_view param) const override;
  std::span<std::byte> memory() override { return memory_; }
  Counter* counter(std::string_view metric) override;
  CompletionPort& completion_port() override { return completions_; }
  std::uint32_t workers() const override { return workers_; }

  // Values of all declared metrics, in the order of StageInfo.
  std::vector<std::pair<std::string, std::uint64_t>> metric_values() const;

 private:
  ParamValue value_of(std::string_view param) const;
  void run_parallel(std::size_t tiles, void (*body)(void*, std::size_t), void* object) override {
    executor_.parallel(tiles, workers_, body, object);
  }

  const StageSpec& spec_;
  const StageInfo& info_;
  std::uint32_t instance_;
  ExpertPartition experts_;
  const Services& services_;
  std::span<std::byte> memory_;
  Executor& executor_;
  std::uint32_t workers_;
  CompletionPort& completions_;
  const LiveParameters* live_;
  std::deque<Counter> counters_;  // by metric of StageInfo
};

}  // namespace colibri
