// colibri inspect: what a container holds, and what the stage kinds are.
#include <colibri/registry.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/container/container_files.hpp"
#include "runtime/cli/inspect_model.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "topology/describe_kind.hpp"
#include "topology/problem_text.hpp"

namespace colibri::cli {
namespace {

struct InspectArguments {
  std::string what;  // a folder or a kind; empty: all kinds
  bool json = false;
  bool schema = false;
  bool markdown = false;
};

// A slash makes a path of it; else a container of that name comes before a kind of that name.
bool is_model(const std::string& what, StageInfos kinds) {
  if (what.find('/') != std::string::npos || check_container_folder(what)) return true;
  std::error_code ignored;
  return find_kind(kinds, what) == nullptr && std::filesystem::exists(what, ignored);
}

ExitStatus run_inspect(const InspectArguments& arguments, VerbContext& context) {
  const Registry registry = builtin_registry();
  const std::vector<const StageInfo*> kinds = registry.infos();
  if (arguments.schema || arguments.markdown) {
    context.console.print(arguments.schema ? pipeline_json_schema(kinds) : reference_markdown(kinds));
    return ExitStatus::ok;
  }
  if (arguments.what.empty()) {
    context.console.print(arguments.json ? list_kinds_json(kinds) : list_kinds(kinds));
    return ExitStatus::ok;
  }
  if (is_model(arguments.what, kinds)) {
    const Result<std::string> text = describe_model(arguments.what, arguments.json);
    if (!text) return context.fail(Status(text.status()).at("inspect"));
    context.console.print(*text);
    return ExitStatus::ok;
  }
  const StageInfo* info = find_kind(kinds, arguments.what);
  if (info == nullptr) {
    return context.fail(Status(ErrorCode::not_found,
                               "neither a model folder nor a stage kind: " + quote_value(arguments.what) +
                                   "; kinds are " + join_names(kind_names(kinds)) +
                                   suggest_name(arguments.what, kind_names(kinds)))
                            .at("inspect"));
  }
  context.console.print(arguments.json ? describe_kind_json(*info) : describe_kind(*info));
  return ExitStatus::ok;
}

}  // namespace

void add_inspect(Verb& program, VerbContext& context) {
  Verb verb = program.verb("inspect", "Show what a container holds, or what a stage kind is");
  verb.footer(
      "With no argument every stage kind, one a line. A name without a slash that is a container is\n"
      "shown as such; write ./fetch for any other folder that is named like a kind.\n\n"
      "Examples:\n"
      "  colibri inspect model\n"
      "  colibri inspect\n"
      "  colibri inspect fetch --json\n"
      "  colibri inspect --schema > configs/pipeline.schema.json");
  auto arguments = std::make_shared<InspectArguments>();
  Option what = verb.positional("DIR_OR_KIND", arguments->what, "The container, or the stage kind");
  Option json = verb.flag("--json", arguments->json, "As one JSON object");
  Option schema =
      verb.flag("--schema", arguments->schema, "Print the JSON Schema of pipeline files, for editors");
  schema.excludes(what).excludes(json);
  verb.flag("--markdown", arguments->markdown, "Print the reference of pipeline files as Markdown tables")
      .excludes(what)
      .excludes(json)
      .excludes(schema);
  verb.on_run(context, [arguments, &context] { return run_inspect(*arguments, context); });
}

}  // namespace colibri::cli
