// hwloc's tree of the running machine as the flat lists of a Machine.
#include "topology/hardware.hpp"

#include <hwloc.h>

#include <algorithm>
#include <memory>

namespace colibri {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

// Plug-ins of hwloc that start drivers to ask them, or leak; what Linux itself tells of devices is enough.
constexpr const char* kLeftOut[] = {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"};

Topology make_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, hwloc_topology_destroy};
  for (const char* plugin : kLeftOut) {
    // Fails for those that are not installed.
    static_cast<void>(hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin));
  }
  return {raw, hwloc_topology_destroy};
}

// Calls visit for each object of a type, in hwloc's order.
template <class Visit>
void visit_objects(hwloc_topology_t topology, hwloc_obj_type_t type, Visit visit) {
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    visit(*object);
  }
}

std::vector<std::uint32_t> cpus_of(const hwloc_obj& object, const std::vector<std::uint32_t>& allowed) {
  std::vector<std::uint32_t> cpus;
  for (const std::uint32_t cpu : allowed) {
    if (object.cpuset != nullptr && hwloc_bitmap_isset(object.cpuset, cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

void read_nodes(hwloc_topology_t topology, Machine& machine) {
  visit_objects(topology, HWLOC_OBJ_NUMANODE, [&](const hwloc_obj& object) {
    const std::uint64_t bytes = object.attr != nullptr ? object.attr->numanode.local_memory : 0;
    machine.nodes.push_back({object.os_index, cpus_of(object, machine.cpus), bytes});
  });
  std::sort(machine.nodes.begin(), machine.nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.index < b.index; });
}

void read_cores(hwloc_topology_t topology, Machine& machine) {
  visit_objects(topology, HWLOC_OBJ_CORE, [&](hwloc_obj& object) {
    Core core{0, cpus_of(object, machine.cpus)};
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, &object);
    if (package != nullptr) core.package = package->logical_index;
    if (!core.cpus.empty()) machine.cores.push_back(std::move(core));
  });
}

void read_caches(hwloc_topology_t topology, Machine& machine) {
  constexpr hwloc_obj_type_t kDataCaches[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                              HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
  for (std::uint32_t level = 1; level <= std::size(kDataCaches); ++level) {
    visit_objects(topology, kDataCaches[level - 1], [&](const hwloc_obj& object) {
      Cache cache{level, object.attr != nullptr ? object.attr->cache.size : 0, cpus_of(object, machine.cpus)};
      if (!cache.cpus.empty()) machine.caches.push_back(std::move(cache));
    });
  }
}

void read_devices(hwloc_topology_t topology, Machine& machine) {
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_osdev(topology, object)) != nullptr;) {
    Device device;
    if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_BLOCK) {
      device.kind = Device::Kind::drive;
    } else if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_GPU ||
               object->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC) {
      device.kind = Device::Kind::gpu;
    } else {
      continue;
    }
    device.name = object->name != nullptr ? object->name : "unnamed";
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, object);
    if (near != nullptr && near->nodeset != nullptr && hwloc_bitmap_weight(near->nodeset) == 1) {
      device.node = static_cast<std::uint32_t>(hwloc_bitmap_first(near->nodeset));
    }
    machine.devices.push_back(std::move(device));
  }
}

void read_tree(hwloc_topology_t topology, Machine& machine) {
  read_nodes(topology, machine);
  read_cores(topology, machine);
  read_caches(topology, machine);
  read_devices(topology, machine);
}

}  // namespace

void read_running_hardware(MachineDetail detail, Machine& machine) {
  const Topology topology = make_topology();
  if (topology == nullptr) return;
  hwloc_topology_set_icache_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  if (detail == MachineDetail::devices) {
    hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  }
  if (hwloc_topology_load(topology.get()) == 0) read_tree(topology.get(), machine);
}

}  // namespace colibri
