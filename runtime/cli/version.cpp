// colibri version: what this binary is, and what it would use on this machine.
#include <memory>
#include <string>

#include "kernels/kernel_table.hpp"
#include "runtime/cli/kernel_choice.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

// "avx512 (chosen), avx2, scalar", best first; variants that this processor lacks are marked.
std::string kernel_variants(const kernels::KernelTable* chosen) {
  std::string text;
  for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
    text.append(text.empty() ? "" : ", ").append(table->name);
    if (table == chosen) {
      text += " (chosen)";
    } else if (!table->supported()) {
      text += " (not on this processor)";
    }
  }
  return text;
}

ExitStatus run_version(bool verbose, VerbContext& context) {
  std::string text = "colibri " COLIBRI_VERSION "\n";
  if (verbose) {
    const Result<const kernels::KernelTable*> chosen = kernels_of_environment();
    if (!chosen) return context.fail(Status(chosen.status()).at("version"));
    text += "kernels: " + kernel_variants(*chosen) + "\n";
    text += "compiler: " COLIBRI_COMPILER "\n";
  }
  context.console.print(text);
  return ExitStatus::ok;
}

}  // namespace

void add_version(Verb& program, VerbContext& context) {
  Verb verb = program.verb("version", "Print the version");
  verb.footer(
      "COLIBRI_KERNELS=scalar (or another variant) forces the kernels of a run.\n\n"
      "Examples:\n  colibri version --verbose");
  auto verbose = std::make_shared<bool>(false);
  verb.flag("--verbose", *verbose, "Also print the kernel variants, which one is chosen, and the compiler");
  verb.on_run(context, [verbose, &context] { return run_version(*verbose, context); });
}

}  // namespace colibri::cli
