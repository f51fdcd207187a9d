// The built-in kinds, each stage wrapped: a test sees every call into every stage, and may make it fail.
#pragma once

#include <colibri/registry.hpp>
#include <colibri/stage.hpp>
#include <functional>
#include <string>

namespace colibri::testing {

enum class Call { start, on_message, resume, end_of_input, tile, stop };

// What is called around the stages of all registries of this file, from the threads that call the stages.
struct StageHooks {
  // Before on_message, resume, end_of_input, and each tile of context.parallel; may throw.
  std::function<void(const std::string& stage, Call call)> before;
  // After a start that went well, so that there is something to stop; may throw.
  std::function<Status(const std::string& stage)> after_start;
  // After each stop; may not throw.
  std::function<void(const std::string& stage)> after_stop;
  // When a stage is made, with its kind; may throw.
  std::function<void(const std::string& kind)> created;
};
// To be changed while no pipeline exists.
StageHooks& stage_hooks();

// All kinds of builtin_registry(), wrapped.
Registry hooked_registry();

// Sets the hooks for a scope.
class ScopedHooks {
 public:
  explicit ScopedHooks(StageHooks hooks) { stage_hooks() = std::move(hooks); }
  ~ScopedHooks() { stage_hooks() = {}; }
  ScopedHooks(const ScopedHooks&) = delete;
  ScopedHooks& operator=(const ScopedHooks&) = delete;
};

}  // namespace colibri::testing
