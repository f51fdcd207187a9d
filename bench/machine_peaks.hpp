// What this processor can do at most, for the figures of the kernels to be compared with.
#pragma once

namespace colibri {

// Registers benches of the instructions that integer products are made of, without loads, and of reading
// memory on one core.
void register_machine_peaks();

}  // namespace colibri
