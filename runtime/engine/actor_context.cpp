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

ExpertPartition experts_of(const StageSpec& spec, const StageInfo& info) {
  if (!info.partitioned) return {};
  auto experts = ExpertPartition::parse(effective_param(spec, info, "experts"));
  assert(experts.is_ok() && "checked when the pipeline was parsed");
  return experts.is_ok() ? std::move(experts).value() : ExpertPartition();
}

}  // namespace

ActorContext::ActorContext(const StageSpec& spec, const StageInfo& info, std::uint32_t instance,
                           const Services& services, std::span<std::byte> memory, Executor& executor,
                           std::uint32_t workers, CompletionPort& completions, const LiveParameters* live)
    : spec_(spec),
      info_(info),
      instance_(instance),
      experts_(experts_of(spec, info)),
      services_(services),
      memory_(memory),
      executor_(executor),
      workers_(workers),
      completions_(completions),
      live_(live),
      counters_(info.metrics.size()) {}

ParamValue ActorContext::value_of(std::string_view param) const {
  if (live_ != nullptr) {
    if (const LiveParameters::Cell* cell = live_->find(spec_.name, param)) return cell->get();
  }
  auto value = read_param(find_param(info_, param), effective_param(spec_, info_, param));
  assert(value.is_ok() && "checked when the pipeline was parsed");
  return value.is_ok() ? value.value() : ParamValue{};
}

std::uint64_t ActorContext::integer(std::string_view param) const { return value_of(param).integer; }
double ActorContext::number(std::string_view param) const { return value_of(param).number; }
bool ActorContext::boolean(std::string_view param) const { return value_of(param).boolean; }
std::string_view ActorContext::text(std::string_view param) const {
  const ParamValue value = value_of(param);
  return value.is_auto ? "auto" : value.text;
}
bool ActorContext::is_auto(std::string_view param) const { return value_of(param).is_auto; }

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
