// Which variant of the compute kernels this run uses.
#pragma once

#include "io/status.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri::cli {

// What the environment variable COLIBRI_KERNELS names, else the best (runtime/engine/kernel_choice.hpp).
Result<const kernels::KernelTable*> kernels_of_environment();

}  // namespace colibri::cli
