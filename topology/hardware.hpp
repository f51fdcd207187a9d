// The hardware of a machine: nodes, cores, caches, drives and GPUs; what cannot be told is left empty.
//
// The running machine is asked by hwloc. Text that hwloc has exported elsewhere is read here, without
// hwloc: its reader trusts what it reads, and ends the process over a damaged file.
#pragma once

#include <string_view>

#include "topology/machine.hpp"

namespace colibri {

// Fills nodes, cores, caches (and devices, if asked for) of the running machine; cpus outside machine.cpus
// are left out. Leaves all empty when hwloc cannot look.
void read_running_hardware(MachineDetail detail, Machine& machine);

// The same from exported text (XML of hwloc 2), and cpus too. Errors say what is wrong and in which line,
// without the file's name.
Status read_exported_hardware(std::string_view xml, Machine& machine);

}  // namespace colibri
