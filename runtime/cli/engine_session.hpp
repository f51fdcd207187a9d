// EngineSession: what verbs that run a model share. Pipeline flags, the engine, its threads.
//
// The program, not the library, allows the threads that the engine wants: a oneTBB control
// that lives as long as the session.
#pragma once

#include <colibri/engine.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cli/job_files.hpp"
#include "runtime/cli/pipeline_flags.hpp"
#include "runtime/cli/verb.hpp"

namespace colibri::cli {

// What a verb adds to the opening of an engine.
struct SessionOptions {
  // Files of the verb; the profile and those that stages write are added to them, and all are checked against
  // each other (job_files.hpp).
  std::vector<JobFile> files = {};
  // Asked before weights are read: what else the verb has to refuse.
  std::function<Status(const Container&)> before_loading = {};
  std::function<Result<Workload>(const Container&, const Tokenizer*)> workload = {};  // as of EngineOptions
  std::function<bool()> stopping = {};                                                // the same
};

class EngineSession {
 public:
  // Reports every problem of the pipeline on the console; the status then only says how many.
  static Result<std::unique_ptr<EngineSession>> open(const std::string& model, const PipelineFlags& flags,
                                                     VerbContext& context, SessionOptions options = {});
  // The same for a pipeline that was read and checked already.
  static Result<std::unique_ptr<EngineSession>> open(const std::string& model, PipelineSpec pipeline,
                                                     VerbContext& context, SessionOptions options = {});
  ~EngineSession();

  Engine& engine() noexcept { return *engine_; }
  // Writes the profile where the pipeline wants it.
  Status write_profile(const RunReport& report) const;

 private:
  struct Threads;
  EngineSession();

  std::unique_ptr<Threads> threads_;
  std::unique_ptr<Engine> engine_;
  std::string profile_output_;
};

// Whether a file that is written at the end of a run can be written, seen before the run. Creates nothing.
Status check_writable(const std::string& path);

// The checked pipeline of the flags; problems go to the console.
Result<PipelineSpec> checked_pipeline(const PipelineFlags& flags, const Registry& registry,
                                      VerbContext& context);

}  // namespace colibri::cli
