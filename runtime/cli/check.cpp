// colibri check: every mistake of a pipeline file at once, its effective values, its drawing, its
// placement. On this machine or on another one, and for a model if one is named.
#include <colibri/engine.hpp>
#include <colibri/registry.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cli/pipeline_flags.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "runtime/engine/message_credits.hpp"
#include "runtime/memory/plan_notes.hpp"
#include "topology/machine_check.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/value_notes.hpp"

namespace colibri::cli {
namespace {

struct CheckArguments {
  PipelineFlags pipeline;
  std::string machine;  // a file of hwloc; empty: this machine
  std::string model;    // empty: sizes that depend on it are not checked
  bool dump = false;
  bool dot = false;
  bool placement = false;
};

Result<Machine> machine_of(const CheckArguments& arguments) {
  if (!arguments.machine.empty()) return read_machine_file(arguments.machine);
  return read_machine("/", arguments.placement ? MachineDetail::devices : MachineDetail::processors);
}

// One run of the verb: the file, then the machine, then the model, each on top of the ones before.
class Check {
 public:
  Check(const CheckArguments& arguments, VerbContext& context) : arguments_(arguments), context_(context) {}

  ExitStatus run() {
    if (Status read = read_all(); !read) return context_.fail(std::move(read).at("check"));
    if (!problems_.lines.empty()) {
      // As compilers print them, so that editors find the places.
      for (const std::string& problem : problems_.lines) context_.console.write_report(problem + "\n");
      context_.console.error("check: problems in " + arguments_.pipeline.file + ": " +
                             std::to_string(problems_.lines.size()));
      return ExitStatus::job_failed;
    }
    context_.console.print(answer());
    return ExitStatus::ok;
  }

 private:
  Status read_all() {
    COLIBRI_ASSIGN_OR_RETURN(LoadedPipeline loaded, load_pipeline(arguments_.pipeline, kinds_));
    COLIBRI_ASSIGN_OR_RETURN(machine_, machine_of(arguments_));
    spec_ = std::move(loaded.spec);
    problems_ = std::move(loaded.problems);
    // Sizes are counted for what can be built only.
    const bool complete = problems_.lines.empty();
    check_placement(spec_, machine_, problems_);
    check_memory(spec_, machine_, problems_);
    if (const std::optional<PlanInputs> steps = declared_steps(spec_)) {
      check_circulation(spec_, *steps, problems_);
      check_edge_capacities(spec_, kinds_, message_credits(*steps, 0), problems_);
    }
    if (arguments_.model.empty() || !complete) return {};
    const std::size_t before = problems_.lines.size();
    auto plan = plan_model(arguments_.model, spec_, registry_, machine_, &problems_);
    if (plan) {
      plan_ = std::move(*plan);
      return {};
    }
    // What is refused has become problems; what cannot be read has not.
    return problems_.lines.size() > before ? Status() : plan.status();
  }

  std::string answer() const {
    if (arguments_.dot) return draw_pipeline_dot(spec_, kinds_);
    const PlacementPlan placement = place_pipeline(spec_, kinds_, machine_);
    if (arguments_.placement) return placement_table(spec_, kinds_, machine_, placement);
    if (!arguments_.dump) return "ok: " + arguments_.pipeline.file + "\n";
    ValueNotes notes = machine_notes(spec_, machine_, placement);
    if (const std::optional<PlanInputs> steps = declared_steps(spec_))
      add_step_notes(spec_.steps, *steps, notes);
    if (plan_) add_plan_notes(spec_, kinds_, machine_, *plan_, notes);
    return dump_pipeline(spec_, kinds_, notes);
  }

  const CheckArguments& arguments_;
  VerbContext& context_;
  const Registry registry_ = builtin_registry();
  const std::vector<const StageInfo*> kinds_ = registry_.infos();
  PipelineSpec spec_;
  PipelineProblems problems_;
  Machine machine_;
  std::optional<MemoryPlan> plan_;
};

}  // namespace

void add_check(Verb& program, VerbContext& context) {
  Verb verb = program.verb("check", "Check a pipeline file");
  verb.footer(
      "Examples:\n"
      "  colibri check configs/batch.yaml\n"
      "  colibri check configs/batch.yaml --set stages.fetch.lanes=16 --dump\n"
      "  colibri check configs/batch.yaml --model model --dump\n"
      "  colibri check configs/batch.yaml --placement --machine server.xml\n"
      "  colibri check configs/batch.yaml --dot | dot -Tsvg -o pipeline.svg");
  auto arguments = std::make_shared<CheckArguments>();
  verb.positional("FILE", arguments->pipeline.file, "The pipeline file").required();
  Option dump = verb.flag("--dump", arguments->dump, "Print each effective value and where it came from");
  Option dot = verb.flag("--dot", arguments->dot, "Print the graph in Graphviz's language");
  Option placement =
      verb.flag("--placement", arguments->placement, "Print which CPUs and memory each stage gets, and why");
  dot.excludes(dump);
  placement.excludes(dump).excludes(dot);
  verb.option("--machine", arguments->machine,
              "Check for another machine: a file that `lstopo FILE.xml` has written there");
  verb.option("--model", arguments->model, "Container folder: check the memory that it needs too");
  add_pipeline_setting_flags(verb, arguments->pipeline);
  verb.on_run(context, [arguments, &context] { return Check(*arguments, context).run(); });
}

}  // namespace colibri::cli
