// EngineSession: what verbs that run a model share. Pipeline flags, the engine, its threads.
//
// The program, not the library, allows the threads that the engine wants: a oneTBB control
// that lives as long as the session.
#pragma once

#include <colibri/engine.hpp>
#include <memory>
#include <string>

#include "runtime/cli/pipeline_flags.hpp"
#include "runtime/cli/verb.hpp"

namespace colibri::cli {

class EngineSession {
 public:
  // Reports every problem of the pipeline on the console; the status then only says how many.
  static Result<std::unique_ptr<EngineSession>> open(const std::string& model, const PipelineFlags& flags,
                                                     VerbContext& context);
  ~EngineSession();

  Engine& engine() noexcept { return *engine_; }
  // File for the JSON profile that the pipeline names; empty: none.
  const std::string& profile_output() const noexcept { return profile_output_; }
  // Writes the profile where the pipeline wants it.
  Status write_profile(const RunReport& report) const;

 private:
  struct Threads;
  EngineSession();

  std::unique_ptr<Threads> threads_;
  std::unique_ptr<Engine> engine_;
  std::string profile_output_;
};

// The checked pipeline of the flags; problems go to the console.
Result<PipelineSpec> checked_pipeline(const PipelineFlags& flags, const Registry& registry, VerbContext& context);

}  // namespace colibri::cli
