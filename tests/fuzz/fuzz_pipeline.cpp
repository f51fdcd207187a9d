// A pipeline file. A file without problems is dumped to one that says the same.
#include <string>

#include <colibri/registry.hpp>

#include "tests/fuzz/fuzz_target.hpp"
#include "topology/pipeline_spec.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  const Registry registry = builtin_registry();
  const auto kinds = registry.infos();
  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(fuzz::as_text(data, size), "pipeline.yaml", kinds, {}, problems);
  check_pipeline(spec, kinds, problems);
  MessageCredits credits{};
  credits.fill(16);
  check_edge_capacities(spec, kinds, credits, problems);
  PipelineProblems of_model;
  check_partitions(spec, kinds, 60, of_model);
  static_cast<void>(draw_pipeline_dot(spec, kinds));
  const std::string text = dump_pipeline(spec, kinds);
  if (!problems.lines.empty()) return 0;
  PipelineProblems again;
  check_pipeline(parse_pipeline(text, "dump.yaml", kinds, {}, again), kinds, again);
  fuzz::fuzz_check(again.lines.empty(), "the dump of a valid pipeline is not valid");
  return 0;
}
