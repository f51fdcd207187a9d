// XML of hwloc 2 as a Machine: nested <object type="..." os_index="..." cpuset="0x0000000f">.
//
// Untrusted: numbers are checked before anything is sized by them, and objects are taken one by
// one, so that a damaged file gives an error or a smaller machine.
#include <algorithm>
#include <charconv>

#include "topology/cpu_list.hpp"
#include "topology/hardware.hpp"
#include "topology/memory_binding.hpp"
#include "topology/problem_text.hpp"
#include "topology/xml_scan.hpp"

namespace colibri {
namespace {

using Numbers = std::vector<std::uint32_t>;

constexpr std::string_view kCacheTypes[] = {"L1Cache", "L2Cache", "L3Cache", "L4Cache", "L5Cache"};

template <class Integer>
bool parse_integer(std::string_view text, int base, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

// "0x00000003,,0x0000000f": words of 32 bits, the highest first; an empty one is 0.
bool read_bits(std::string_view text, Numbers& bits) {
  const auto words = static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  if (text.empty() || words > (kMaximumCpu + 1) / 32) return false;
  bits.clear();
  for (std::size_t i = words; i-- > 0;) {
    std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    std::uint32_t value = 0;
    if (word.starts_with("0x")) word.remove_prefix(2);
    if (!word.empty() && !parse_integer(word, 16, value)) return false;
    for (std::uint32_t bit = 32; bit-- > 0;) {
      if ((value >> bit & 1) != 0) bits.push_back(static_cast<std::uint32_t>(32 * i) + bit);
    }
  }
  std::reverse(bits.begin(), bits.end());
  return true;
}

class ExportedHardware {
 public:
  ExportedHardware(std::string_view xml, Machine& machine) : scanner_(xml), machine_(machine) {}

  Status read() {
    COLIBRI_ASSIGN_OR_RETURN(const XmlTag top, scanner_.next());
    if (top.name != "topology" || top.closes) return error("it does not begin with <topology>");
    if (!top.attribute("version").starts_with("2.")) {
      return error("it has version " + quote_value(top.attribute("version")) + " of the format, not 2");
    }
    while (scanner_.depth() > 0) {
      COLIBRI_ASSIGN_OR_RETURN(const XmlTag tag, scanner_.next());
      if (tag.name != "object") continue;
      if (tag.opens) {
        objects_.push_back(objects_.empty() ? Object{} : objects_.back());
        COLIBRI_RETURN_IF_ERROR(open_object(tag));
      }
      if (tag.closes) objects_.pop_back();
    }
    return finish();
  }

 private:
  // What is inside an object takes from it what it has not itself.
  struct Object {
    std::uint32_t package = 0;
    Numbers cpus, nodes;  // of the nearest object that has some
  };

  Status error(std::string what) const { return {ErrorCode::invalid_input, what + ", " + scanner_.place()}; }

  Status open_object(const XmlTag& tag) {
    const std::string_view type = tag.attribute("type");
    Object& object = objects_.back();
    for (const auto& [name, bits] :
         {std::pair("cpuset", &object.cpus), std::pair("nodeset", &object.nodes)}) {
      const std::string_view text = tag.attribute(name);
      if (!text.empty() && !read_bits(text, *bits)) {
        return error("it has a " + std::string(name) + " that cannot be read, " + quote_value(text));
      }
    }
    if (type == "Machine") return open_machine(tag);
    if (type == "OSDev") return open_device(tag, object);
    if (type == "Package") object.package = packages_++;
    if (type == "PU") return open_cpu(tag);
    if (type == "NUMANode") return open_node(tag, object);
    if (type == "Core") machine_.cores.push_back({object.package, object.cpus});
    const auto* cache = std::find(std::begin(kCacheTypes), std::end(kCacheTypes), type);
    return cache == std::end(kCacheTypes) ? Status() : open_cache(tag, cache - kCacheTypes + 1, object);
  }

  Status open_machine(const XmlTag& tag) {
    const std::string_view allowed = tag.attribute("allowed_cpuset");
    has_allowed_ = !allowed.empty();
    if (has_allowed_ && !read_bits(allowed, allowed_))
      return error("it has an allowed_cpuset that cannot be read");
    return {};
  }

  Status index_of(const XmlTag& tag, std::uint32_t highest, std::uint32_t& index) const {
    const std::string_view text = tag.attribute("os_index");
    if (parse_integer(text, 10, index) && index <= highest) return {};
    return error("it has a " + std::string(tag.attribute("type")) + " with the number " + quote_value(text) +
                 "; the highest is " + std::to_string(highest));
  }

  Status open_cpu(const XmlTag& tag) {
    std::uint32_t cpu = 0;
    COLIBRI_RETURN_IF_ERROR(index_of(tag, kMaximumCpu, cpu));
    if (!has_allowed_ || std::binary_search(allowed_.begin(), allowed_.end(), cpu))
      machine_.cpus.push_back(cpu);
    return {};
  }

  Status open_node(const XmlTag& tag, const Object& object) {
    NumaNode node{.index = 0, .cpus = object.cpus};
    COLIBRI_RETURN_IF_ERROR(index_of(tag, kMaximumNode, node.index));
    const std::string_view bytes = tag.attribute("local_memory");
    if (!bytes.empty() && !parse_integer(bytes, 10, node.memory_bytes)) {
      return error("it has a node with memory of " + quote_value(bytes));
    }
    machine_.nodes.push_back(std::move(node));
    return {};
  }

  Status open_cache(const XmlTag& tag, std::ptrdiff_t level, const Object& object) {
    std::uint64_t bytes = 0;
    const std::string_view text = tag.attribute("cache_size");
    if (!text.empty() && !parse_integer(text, 10, bytes))
      return error("it has a cache of " + quote_value(text));
    machine_.caches.push_back({static_cast<std::uint32_t>(level), bytes, object.cpus});
    return {};
  }

  Status open_device(const XmlTag& tag, const Object& object) {
    const std::string_view type = tag.attribute("osdev_type");
    const bool drive = type == "0",
               gpu = type == "1" || type == "5";  // 5: coprocessors, as CUDA's view of a GPU
    if (!drive && !gpu) return {};
    Device device{drive ? Device::Kind::drive : Device::Kind::gpu, std::string(tag.attribute("name")), {}};
    // It is printed: nothing but what the kernel names devices with.
    const bool plain =
        std::all_of(device.name.begin(), device.name.end(), [](char c) { return c > ' ' && c < 127; });
    if (device.name.empty() || !plain)
      return error("it has a device with the name " + quote_value(device.name));
    if (object.nodes.size() == 1) device.node = object.nodes.front();
    machine_.devices.push_back(std::move(device));
    return {};
  }

  // Everything in order, and nothing outside the CPUs.
  Status finish() {
    Numbers& cpus = machine_.cpus;
    std::sort(cpus.begin(), cpus.end());
    if (cpus.empty()) return {ErrorCode::invalid_input, "it describes no CPUs that may be used"};
    if (std::adjacent_find(cpus.begin(), cpus.end()) != cpus.end()) {
      return {ErrorCode::invalid_input, "it has a CPU twice"};
    }
    const auto by_index = [](const NumaNode& a, const NumaNode& b) { return a.index < b.index; };
    std::sort(machine_.nodes.begin(), machine_.nodes.end(), by_index);
    for (std::size_t i = 1; i < machine_.nodes.size(); ++i) {
      if (machine_.nodes[i - 1].index == machine_.nodes[i].index) {
        return {ErrorCode::invalid_input, "it has a NUMA node twice"};
      }
    }
    if (machine_.nodes.empty()) return {ErrorCode::invalid_input, "it describes no NUMA nodes"};
    for (NumaNode& node : machine_.nodes) node.cpus = common_cpus(node.cpus, cpus);
    for (Core& core : machine_.cores) core.cpus = common_cpus(core.cpus, cpus);
    for (Cache& cache : machine_.caches) cache.cpus = common_cpus(cache.cpus, cpus);
    std::erase_if(machine_.cores, [](const Core& core) { return core.cpus.empty(); });
    std::erase_if(machine_.caches, [](const Cache& cache) { return cache.cpus.empty(); });
    std::stable_sort(machine_.caches.begin(), machine_.caches.end(),
                     [](const Cache& a, const Cache& b) { return a.level < b.level; });
    return {};
  }

  XmlScanner scanner_;
  Machine& machine_;
  std::vector<Object> objects_;  // those that are open, the innermost last
  std::uint32_t packages_ = 0;
  bool has_allowed_ = false;
  Numbers allowed_;
};

}  // namespace

Status read_exported_hardware(std::string_view xml, Machine& machine) {
  return ExportedHardware(xml, machine).read();
}

}  // namespace colibri
