// COLIBRI_KERNELS, for comparisons and tests.
#include "runtime/cli/kernel_choice.hpp"

#include <cstdlib>
#include <utility>

#include "runtime/engine/kernel_choice.hpp"

namespace colibri::cli {

Result<const kernels::KernelTable*> kernels_of_environment() {
  const char* forced = std::getenv("COLIBRI_KERNELS");
  auto chosen = choose_kernels(forced == nullptr ? "" : forced);
  if (!chosen) return std::move(chosen).status().at("COLIBRI_KERNELS");
  return chosen;
}

}  // namespace colibri::cli
