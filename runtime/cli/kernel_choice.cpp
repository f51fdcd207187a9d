// COLIBRI_KERNELS, checked against the kernel table.
#include "runtime/cli/kernel_choice.hpp"

#include <cstdlib>
#include <string>

namespace colibri::cli {

Result<const kernels::KernelTable*> choose_kernels() {
  const char* forced = std::getenv("COLIBRI_KERNELS");
  if (forced == nullptr || *forced == '\0') return &kernels::best_kernel_table();
  if (const kernels::KernelTable* table = kernels::find_kernel_table(forced)) return table;
  std::string usable;
  for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
    if (table->supported()) usable.append(usable.empty() ? "" : ", ").append(table->name);
  }
  return Status(ErrorCode::invalid_input,
                std::string("COLIBRI_KERNELS names kernels that are not here or that ") +
                    "this processor lacks: " + forced + "; usable are: " + usable);
}

}  // namespace colibri::cli
