// colibri verify: re-reads a container and compares every checksum.
#include <memory>
#include <string>

#include "io/container/container.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

// A signal ends this verb at once: it changes nothing, so there is nothing to finish.
ExitStatus run_verify(const std::string& folder, VerbContext& context) {
  Progress progress(context.console, "verify", ProgressUnit::bytes);
  Status status = verify_container(
      folder, [&progress](std::uint64_t done, std::uint64_t total) { progress.update(done, total); });
  progress.finish();
  if (!status) return context.fail(std::move(status).at("verify"));
  context.console.print("ok: every checksum of " + folder + " matches\n");
  return ExitStatus::ok;
}

}  // namespace

void add_verify(Verb& program, VerbContext& context) {
  Verb verb = program.verb("verify", "Check every checksum of a container");
  verb.footer("Examples:\n  colibri verify model && echo intact");
  auto folder = std::make_shared<std::string>();
  verb.positional("DIR", *folder, "The container").required();
  add_quiet_flag(verb, context);
  verb.on_run(context, [folder, &context] { return run_verify(*folder, context); });
}

}  // namespace colibri::cli
