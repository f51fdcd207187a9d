#include "runtime/engine/kernel_choice.hpp"

#include <string>

namespace colibri {

Result<const kernels::KernelTable*> choose_kernels(std::string_view name) {
  if (name.empty()) return &kernels::best_kernel_table();
  if (const kernels::KernelTable* table = kernels::find_kernel_table(name)) return table;
  std::string usable;
  for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
    if (table->supported()) usable.append(usable.empty() ? "" : ", ").append(table->name);
  }
  return Status(ErrorCode::invalid_input, "kernels that are not here or that this processor lacks: " +
                                              std::string(name) + "; usable are: " + usable);
}

}  // namespace colibri
