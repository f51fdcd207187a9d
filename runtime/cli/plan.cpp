// colibri plan: every memory size of a run, without running.
#include <algorithm>
#include <colibri/engine.hpp>
#include <memory>
#include <string>

#include "io/container/container.hpp"
#include "io/container/file_system.hpp"
#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

struct PlanArguments {
  std::string model;
  PipelineFlags pipeline;
  bool json = false;
};

// Where the experts lie, and what to do about a network in between.
std::string drives_text(const std::string& model) {
  const auto container = Container::open(model);
  if (!container) return {};
  std::string kinds;
  std::string advice;
  for (const std::filesystem::path& file : (*container)->expert_files()) {
    const FileSystem kind = file_system_of(file);
    kinds += (kinds.empty() ? "" : ", ") + kind.name;
    if (advice.empty()) advice = network_advice(kind, file);
  }
  return "experts are read from: " + kinds + "\n" + (advice.empty() ? "" : advice + "\n");
}

ExitStatus run_plan(const PlanArguments& arguments, VerbContext& context) {
  const Registry registry = builtin_registry();
  auto pipeline = checked_pipeline(arguments.pipeline, registry, context);
  if (!pipeline) return context.fail(Status(pipeline.status()).at("plan"));
  const auto machine = read_machine();
  if (!machine) return context.fail(Status(machine.status()).at("plan"));
  const auto plan = plan_model(arguments.model, *pipeline, registry, *machine);
  if (!plan) return context.fail(Status(plan.status()).at("plan"));
  if (arguments.json) {
    context.console.print(plan->to_json());
    return ExitStatus::ok;
  }
  const PlanInputs& inputs = plan->inputs;
  const std::uint64_t longest = std::min<std::uint64_t>(plan->longest_request(), plan->max_seq_len);
  context.console.print(
      "plan for " + arguments.model + ": steps of " + std::to_string(inputs.max_rows) + " rows in waves of " +
      std::to_string(inputs.wave_rows) + ", " + std::to_string(inputs.in_flight) + " in flight, " +
      std::to_string(inputs.threads) + " threads" +
      (plan->kv_pages > 0 ? "; longest request " + std::to_string(longest) + " tokens" : "") + "\n" +
      plan->to_table() + drives_text(arguments.model));
  return ExitStatus::ok;
}

}  // namespace

void add_plan(Verb& program, VerbContext& context) {
  Verb verb = program.verb("plan", "Show every memory size of a run, without running");
  verb.footer(
      "Examples:\n"
      "  colibri plan model\n"
      "  colibri plan model --experts-memory 25% --max-rows 1024 --json");
  auto arguments = std::make_shared<PlanArguments>();
  verb.positional("MODEL", arguments->model, "Container folder").required();
  verb.flag("--json", arguments->json, "As JSON, sizes in bytes");
  add_pipeline_flags(verb, arguments->pipeline);
  verb.on_run(context, [arguments, &context] { return run_plan(*arguments, context); });
}

}  // namespace colibri::cli
