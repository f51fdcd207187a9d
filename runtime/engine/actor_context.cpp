#include "runtime/engine/actor_context.hpp"

#include <cassert>
#include <utility>

#include "topology/param_value.hpp"

namespace colibri {
namespace {

const ParamInfo& find_param(const StageInfo& info, std::string_view name) {
  for (const ParamInfo& param : info.params) {
    if (param.name == name) return param;
  }
  assert(false && "the stage asked for a parameter that its StageInfo does not declare");
  return info.params.front();
}

ParamValue value_of(const StageSpec& spec, const StageInfo& info, std::string_view name) {
  auto value = read_param(find_param(info, name), effective_param(spec, info, name));
  assert(value.is_ok() && "checked when the pipeline was parsed");
  return value.is_ok() ? value.value() : ParamValue{};
}

ExpertPartition experts_of(const StageSpec& spec, const StageInfo& info) {
  if (!info.partitioned) return {};
  auto experts = ExpertPartition::parse(effective_param(spec, info, "experts"));
  assert(experts.is_ok() && "checked when the pipeline was parsed");
  return experts.is_ok() ? std::move(experts).value() : ExpertPartition();
}

}  // namespace

ActorContext::ActorContext(const StageSpec& spec, const StageInfo& info, std::uint32_t instance,
                           const Services& services, std::span<std::byte> memory, Executor& executor,
                           std::uint32_t workers, CompletionPort& completions)
    : spec_(spec),
      info_(info),
      instance_(instance),
      experts_(experts_of(spec, info)),
      services_(services),
      memory_(memory),
      executor_(executor),
      workers_(workers),
      completions_(completions),
      counters_(info.metrics.size()) {}

std::uint64_t ActorContext::integer(std::string_view param) const {
  return value_of(spec_, info_, param).integer;
}
double ActorContext::number(std::string_view param) const { return value_of(spec_, info_, param).number; }
bool ActorContext::boolean(std::string_view param) const { return value_of(spec_, info_, param).boolean; }
std::string_view ActorContext::text(std::string_view param) const {
  return effective_param(spec_, info_, param);
}
bool ActorContext::is_auto(std::string_view param) const { return value_of(spec_, info_, param).is_auto; }

Counter* ActorContext::counter(std::string_view metric) {
  for (std::size_t i = 0; i < info_.metrics.size(); ++i) {
    if (info_.metrics[i].name == metric) return &counters_[i];
  }
  assert(false && "the stage asked for a metric that its StageInfo does not declare");
  return nullptr;
}

std::vector<std::pair<std::string, std::uint64_t>> ActorContext::metric_values() const {
  std::vector<std::pair<std::string, std::uint64_t>> values;
  for (std::size_t i = 0; i < info_.metrics.size(); ++i)
    values.emplace_back(info_.metrics[i].name, counters_[i].get());
  return values;
}

}  // namespace colibri
