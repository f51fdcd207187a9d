// Which variant of the compute kernels an engine uses.
#pragma once

#include <string_view>

#include "io/status.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri {

// The variant of this name, or the best that this processor supports when the name is empty. A name that is
// unknown or unsupported is an error that says which are usable.
Result<const kernels::KernelTable*> choose_kernels(std::string_view name);

}  // namespace colibri
