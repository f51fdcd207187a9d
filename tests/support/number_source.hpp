// A source for pipelines without a model: the numbers from 0 on, one a message, as many as its parameter
// `count` says.
#pragma once

#include <colibri/registry.hpp>
#include <colibri/stage.hpp>
#include <cstdint>
#include <memory>

#include "topology/pipeline_spec.hpp"

namespace colibri::testing {

inline constexpr PortInfo kNumbersOut[] = {{"out", MessageType::host, "numbers"}};
inline constexpr ParamInfo kNumbersParams[] = {
    {.name = "count", .type = ParamType::integer, .default_value = "1000", .help = "how many numbers"},
};
inline constexpr StageInfo kNumbersInfo = {.kind = "numbers",
                                           .help = "sends numbers",
                                           .outputs = kNumbersOut,
                                           .params = kNumbersParams,
                                           .source = true};

class NumberSource final : public Stage {
 public:
  Status start(StageContext& context) override {
    count_ = context.integer("count");
    return {};
  }
  Wait on_message(Message&, Emitter& out) override { return resume(out); }
  Wait resume(Emitter& out) override {
    if (next_ == count_) {
      out.end();
      return Wait::input;
    }
    out.emit(0, {.first = next_++});
    return Wait::none;
  }

 private:
  std::uint64_t count_ = 0;
  std::uint32_t next_ = 0;
};

inline StageKind number_source_kind() {
  return {&kNumbersInfo, [] { return std::unique_ptr<Stage>(new NumberSource); }};
}

inline StageSpec number_source(const std::string& name, std::uint32_t count) {
  StageSpec stage;
  stage.name = name;
  stage.kind = kNumbersInfo.kind;
  stage.params["count"] = {std::to_string(count), Origin{}};
  return stage;
}

}  // namespace colibri::testing
