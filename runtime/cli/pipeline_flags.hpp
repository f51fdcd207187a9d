// The flags by which a command line changes a pipeline, and the spec that comes out.
//
// `--threads 4` and `--set threads=4` are the same thing. Precedence: command line, environment
// (COLIBRI_*), file, default. Each setting may be given once.
#pragma once

#include <string>
#include <vector>

#include "io/status.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {

class Verb;

struct PipelineFlags {
  std::string file;  // empty: the built-in pipeline
  // In the order of the command line; load_pipeline refuses one path twice.
  std::vector<Override> overrides;
};

// A flag of a verb's own that sets one value of the pipeline: "--profile" for profile.output. `flags` must
// outlive the parsing.
void add_setting_flag(Verb& verb, PipelineFlags& flags, const std::string& flag, const std::string& path,
                      const std::string& help);
// Declares --set and the short forms of common settings. `flags` must outlive the parsing.
void add_pipeline_setting_flags(Verb& verb, PipelineFlags& flags);
// Declares --pipeline FILE too.
void add_pipeline_flags(Verb& verb, PipelineFlags& flags);

struct LoadedPipeline {
  PipelineSpec spec;
  PipelineProblems
      problems;  // of the file, the settings and the graph; the spec is usable when there is none
};

// Reads and checks. Fails only when the file cannot be read.
Result<LoadedPipeline> load_pipeline(const PipelineFlags& flags, StageInfos kinds);

}  // namespace colibri::cli
