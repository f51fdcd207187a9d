// Machines from files of hwloc: what they say, and that no file does harm.
#include <gtest/gtest.h>
#include <hwloc.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "tests/topology/fake_tree.hpp"
#include "topology/cpu_list.hpp"
#include "topology/machine.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using testing::FakeTree;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr const char* kFiles[] = {"one_node_smt.xml", "two_nodes.xml", "eight_nodes_smt.xml"};

fs::path path_of(const std::string& name) { return fs::path(COLIBRI_TEST_DATA) / "topology/machines" / name; }

std::string text_of(const std::string& name) {
  std::ifstream file(path_of(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Machine read(const std::string& name) {
  const auto machine = read_machine_file(path_of(name));
  EXPECT_TRUE(machine.is_ok()) << machine.status().to_string();
  return machine ? *machine : Machine();
}

TEST(MachineFile, OneNodeWithSmt) {
  const Machine machine = read("one_node_smt.xml");
  EXPECT_EQ(machine.name, "the machine of " + path_of("one_node_smt.xml").string());
  EXPECT_EQ(format_cpu_list(machine.cpus), "0-7");
  EXPECT_EQ(machine.numa_nodes, 1u);
  ASSERT_EQ(machine.cores.size(), 4u);
  for (std::uint32_t core = 0; core < 4; ++core) {
    EXPECT_EQ(machine.cores[core].cpus, (std::vector<std::uint32_t>{core, core + 4}));
  }
  ASSERT_EQ(machine.caches.size(), 4u + 4u + 1u);
  EXPECT_EQ(machine.caches[0].level, 1u);
  EXPECT_EQ(machine.caches[0].bytes, 32u << 10);
  EXPECT_EQ(machine.caches[8].level, 3u);
  EXPECT_EQ(machine.caches[8].cpus, machine.cpus);
  EXPECT_EQ(machine.memory_available, 16 * kGiB);
  EXPECT_EQ(machine.default_threads(), 8u);
}

TEST(MachineFile, TwoNodesWithDevices) {
  const Machine machine = read("two_nodes.xml");
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(format_cpu_list(machine.nodes[0].cpus), "0-3");
  EXPECT_EQ(format_cpu_list(machine.nodes[1].cpus), "4-7");
  EXPECT_EQ(machine.nodes[1].memory_bytes, 64 * kGiB);
  EXPECT_EQ(machine.cores[3].package, 0u);
  EXPECT_EQ(machine.cores[4].package, 1u);
  ASSERT_EQ(machine.devices.size(), 3u);
  std::map<std::string, std::pair<Device::Kind, std::uint32_t>> devices;
  for (const Device& device : machine.devices) devices[device.name] = {device.kind, device.node.value_or(99)};
  EXPECT_EQ(devices["card0"], std::pair(Device::Kind::gpu, 0u));
  EXPECT_EQ(devices["nvme0n1"], std::pair(Device::Kind::drive, 0u));
  EXPECT_EQ(devices["nvme1n1"], std::pair(Device::Kind::drive, 1u));
}

TEST(MachineFile, EightNodes) {
  const Machine machine = read("eight_nodes_smt.xml");
  ASSERT_EQ(machine.nodes.size(), 8u);
  EXPECT_EQ(machine.cores.size(), 32u);
  EXPECT_EQ(format_cpu_list(machine.cpus), "0-63");
  for (std::uint32_t node = 0; node < 8; ++node) {
    const std::string first = std::to_string(4 * node) + "-" + std::to_string(4 * node + 3);
    const std::string second = std::to_string(32 + 4 * node) + "-" + std::to_string(32 + 4 * node + 3);
    EXPECT_EQ(format_cpu_list(machine.nodes[node].cpus), first + "," + second);
  }
}

// hwloc reads its own files to the same machine.
class ReadByHwloc : public ::testing::Test {
 protected:
  ~ReadByHwloc() override {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  void load(const std::string* xml) {
    ASSERT_EQ(hwloc_topology_init(&topology_), 0);
    if (xml != nullptr) {
      ASSERT_EQ(hwloc_topology_set_xmlbuffer(topology_, xml->c_str(), static_cast<int>(xml->size() + 1)), 0);
    }
    // The plug-in leaks; hwloc finds the devices without it.
    hwloc_topology_set_components(topology_, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
    hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    ASSERT_EQ(hwloc_topology_load(topology_), 0);
  }
  static std::string list_of(hwloc_const_bitmap_t set) {
    char text[4096];
    hwloc_bitmap_list_snprintf(text, sizeof text, set);
    return text;
  }
  void expect_same(const Machine& machine) {
    const auto count = [&](hwloc_obj_type_t type) {
      return static_cast<std::size_t>(hwloc_get_nbobjs_by_type(topology_, type));
    };
    EXPECT_EQ(format_cpu_list(machine.cpus), list_of(hwloc_topology_get_allowed_cpuset(topology_)));
    ASSERT_EQ(machine.cores.size(), count(HWLOC_OBJ_CORE));
    for (unsigned i = 0; i < machine.cores.size(); ++i) {
      EXPECT_EQ(format_cpu_list(machine.cores[i].cpus),
                list_of(hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, i)->cpuset));
    }
    ASSERT_EQ(machine.nodes.size(), count(HWLOC_OBJ_NUMANODE));
    for (unsigned i = 0; i < machine.nodes.size(); ++i) {
      const hwloc_obj_t node = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, i);
      EXPECT_EQ(machine.nodes[i].index, node->os_index);
      EXPECT_EQ(machine.nodes[i].memory_bytes, node->attr->numanode.local_memory);
      EXPECT_EQ(format_cpu_list(machine.nodes[i].cpus), list_of(node->cpuset));
    }
    EXPECT_EQ(machine.caches.size(),
              count(HWLOC_OBJ_L1CACHE) + count(HWLOC_OBJ_L2CACHE) + count(HWLOC_OBJ_L3CACHE));
    std::set<std::string> ours, theirs;
    for (const Device& device : machine.devices) ours.insert(device.name);
    for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology_, device)) != nullptr;) {
      const auto type = device->attr->osdev.type;
      if (type == HWLOC_OBJ_OSDEV_BLOCK || type == HWLOC_OBJ_OSDEV_GPU || type == HWLOC_OBJ_OSDEV_COPROC) {
        theirs.insert(device->name);
      }
    }
    EXPECT_EQ(ours, theirs);
  }
  hwloc_topology_t topology_ = nullptr;
};

TEST_F(ReadByHwloc, FilesAreTheSameMachines) {
  for (const char* name : kFiles) {
    const std::string xml = text_of(name);
    load(&xml);
    expect_same(read(name));
    hwloc_topology_destroy(topology_);
    topology_ = nullptr;
  }
}

// What hwloc writes of the machine that the test runs on, and what it says itself.
TEST_F(ReadByHwloc, ThisMachineExportedIsTheSame) {
  load(nullptr);
  char* buffer = nullptr;
  int length = 0;
  ASSERT_EQ(hwloc_topology_export_xmlbuffer(topology_, &buffer, &length, 0), 0);
  const FakeTree tree;
  const fs::path file = fs::path(tree.root()) / "machine.xml";
  std::ofstream(file) << buffer;
  hwloc_free_xmlbuffer(topology_, buffer);
  const auto machine = read_machine_file(file);
  ASSERT_TRUE(machine.is_ok()) << machine.status().to_string();
  expect_same(*machine);
}

class BadMachineFile : public ::testing::Test {
 protected:
  // The error for a file with this content.
  std::string error_of(const std::string& content) {
    tree_.file("machine.xml", content);
    const auto machine = read_machine_file(file_);
    EXPECT_FALSE(machine.is_ok()) << content.substr(0, 200);
    return machine ? "" : std::string(machine.status().message());
  }
  void expect_refused(const std::string& content, const std::string& why) {
    EXPECT_EQ(error_of(content), "the machine file cannot be used: " + file_.string() + ": " + why +
                                     "; expected XML written by `lstopo machine.xml` of hwloc 2");
  }
  // `from` replaced in a good file.
  static std::string changed(const std::string& from, const std::string& to) {
    std::string text = text_of("one_node_smt.xml");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }
  FakeTree tree_;
  const fs::path file_ = fs::path(tree_.root()) / "machine.xml";
};

TEST_F(BadMachineFile, IsRefusedByName) {
  EXPECT_EQ(read_machine_file(file_).status().code(), ErrorCode::not_found);
  expect_refused("", "it is empty or cannot be read");
  expect_refused("threads: 4\n", "it does not begin with <topology>, line 1");
  expect_refused(changed("<topology version=\"2.0\">", "<topology version=\"3.0\">"),
                 "it has version '3.0' of the format, not 2, line 3");
  expect_refused(changed("\"hwloc2.dtd\">", "\"hwloc2.dtd\" [<!ENTITY a \"aaaa\">]>"),
                 "it is no XML that can be read: a declaration has parts, line 2");
  expect_refused(changed("</topology>", "</object>"),
                 "it is no XML that can be read: an end has no beginning, line 52");
  expect_refused("<topology version=\"2.0\">" + std::string(2000, '<'),
                 "it is no XML that can be read: it ends early, line 1");
  std::string deep = "<topology version=\"2.0\">";
  for (int i = 0; i < 200; ++i) deep += "<object type=\"Group\">";
  expect_refused(deep, "it is no XML that can be read: elements are nested too deeply, line 1");
  expect_refused(std::string(kMaximumMachineFileBytes + 1, ' '),
                 "it has 8388609 bytes, more than the 8388608 allowed");
  EXPECT_FALSE(read_machine_file(tree_.root()).is_ok());  // a folder
  EXPECT_FALSE(read_machine_file("/dev/zero").is_ok());
}

TEST_F(BadMachineFile, TruncatedAnywhereIsRefused) {
  const std::string text = text_of("two_nodes.xml");
  for (std::size_t length = 1; length + 12 < text.size(); length += 97) error_of(text.substr(0, length));
}

TEST_F(BadMachineFile, NumbersAreCheckedBeforeUse) {
  const std::string cpu = "<object type=\"PU\" os_index=\"4\"";
  for (const char* number : {"8192", "99999999999999999999", "-1", "x", ""}) {
    expect_refused(changed(cpu, "<object type=\"PU\" os_index=\"" + std::string(number) + "\""),
                   "it has a PU with the number '" + std::string(number) + "'; the highest is 8191, line 17");
  }
  expect_refused(changed(cpu, "<object type=\"PU\" os_index=\"0\""), "it has a CPU twice");
  expect_refused(changed("cpuset=\"0x000000ff\"", "cpuset=\"0xf...f\""),
                 "it has a cpuset that cannot be read, '0xf...f', line 4");
  expect_refused(changed("allowed_cpuset=\"0x000000ff\"", "allowed_cpuset=\"0x0\""),
                 "it describes no CPUs that may be used");
  std::string wide;
  for (int word = 0; word < 300; ++word) wide += "0xffffffff,";
  EXPECT_NE(error_of(changed("cpuset=\"0x000000ff\"", "cpuset=\"" + wide + "0x1\"")).find("it has a cpuset"),
            std::string::npos);
}

// CPUs that the machine forbids are left out everywhere.
TEST_F(BadMachineFile, AllowedCpusAlone) {
  tree_.file("machine.xml", changed("allowed_cpuset=\"0x000000ff\"", "allowed_cpuset=\"0x0000001e\""));
  const auto machine = read_machine_file(file_);
  ASSERT_TRUE(machine.is_ok()) << machine.status().to_string();
  EXPECT_EQ(format_cpu_list(machine->cpus), "1-4");
  EXPECT_EQ(format_cpu_list(machine->nodes[0].cpus), "1-4");
  EXPECT_EQ(machine->cores.size(), 4u);
  EXPECT_EQ(machine->cores[0].cpus, (std::vector<std::uint32_t>{4}));
}

// Bytes changed, cut out and doubled at random: an error or a machine that can be used, never more.
TEST_F(BadMachineFile, DamageDoesNoHarm) {
  std::mt19937 random(7);
  std::size_t refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string text = text_of(kFiles[round % std::size(kFiles)]);
    for (int change = 0; change < 1 + round % 4; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text[at] = static_cast<char>('0' + random() % 10); break;
        case 2: text.erase(at, random() % 200); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 200)); break;
      }
    }
    tree_.file("machine.xml", text);
    const auto machine = read_machine_file(file_);
    if (!machine) {
      ++refused;
      continue;
    }
    EXPECT_FALSE(machine->cpus.empty());
    EXPECT_FALSE(machine->nodes.empty());
    EXPECT_LE(machine->cpus.back(), kMaximumCpu);
    for (const NumaNode& node : machine->nodes) {
      EXPECT_TRUE(
          std::includes(machine->cpus.begin(), machine->cpus.end(), node.cpus.begin(), node.cpus.end()));
    }
  }
  EXPECT_GT(refused, 150u);
  EXPECT_LT(refused, 600u);
}

}  // namespace
}  // namespace colibri
