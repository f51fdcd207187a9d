// Which variant of the compute kernels this run uses.
#pragma once

#include "io/status.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri::cli {

// The variant that the environment variable COLIBRI_KERNELS names (for comparisons and tests), else
// the best that this processor supports. A name that is unknown or unsupported is an error.
Result<const kernels::KernelTable*> choose_kernels();

}  // namespace colibri::cli
