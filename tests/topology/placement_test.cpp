// The placement of pipelines on machines that are not here: by the printed table, and by rules that hold for
// every pipeline on every machine.
#include "topology/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "topology/machine_check.hpp"
#include "topology/value_notes.hpp"

namespace colibri {
namespace {

using Numbers = std::vector<std::uint32_t>;

// Kinds by what memory they work in.
constexpr PortInfo kPort[] = {{"waves", MessageType::wave, "waves"}};
constexpr StageInfo kSourceInfo{.kind = "source",
                                .help = "makes waves",
                                .inputs = {},
                                .outputs = kPort,
                                .params = {},
                                .metrics = {},
                                .source = true};
constexpr StageInfo kAttendInfo{.kind = "attend",
                                .help = "attention",
                                .inputs = kPort,
                                .outputs = kPort,
                                .params = {},
                                .metrics = {},
                                .memory = {.dense = true, .kv = true, .steps = true}};
constexpr StageInfo kComputeInfo{.kind = "compute",
                                 .help = "experts",
                                 .inputs = kPort,
                                 .outputs = kPort,
                                 .params = {},
                                 .metrics = {},
                                 .memory = {.dense = true, .steps = true}};
constexpr StageInfo kFetchInfo{.kind = "fetch",
                               .help = "reads",
                               .inputs = kPort,
                               .outputs = kPort,
                               .params = {},
                               .metrics = {},
                               .memory = {.slots = true}};
constexpr const StageInfo* kKinds[] = {&kSourceInfo, &kAttendInfo, &kComputeInfo, &kFetchInfo};

Machine machine_of(const std::string& file) {
  const auto machine = read_machine_file(std::string(COLIBRI_TEST_DATA "/topology/machines/") + file);
  EXPECT_TRUE(machine.is_ok()) << machine.status().to_string();
  Machine found = machine ? *machine : Machine();
  found.name = file;
  return found;
}

PipelineSpec pipeline(std::vector<StageSpec> stages) {
  PipelineSpec spec;
  spec.stages = std::move(stages);
  return spec;
}

std::string table(const PipelineSpec& spec, const Machine& machine) {
  return "\n" + placement_table(spec, kKinds, machine, place_pipeline(spec, kKinds, machine));
}

const PipelineSpec kTwoSides = pipeline({{.name = "read", .kind = "source"},
                                         {.name = "attend", .kind = "attend", .numa_node = 0},
                                         {.name = "fetch0", .kind = "fetch", .numa_node = 0},
                                         {.name = "fetch1", .kind = "fetch", .numa_node = 1},
                                         {.name = "compute1", .kind = "compute", .numa_node = 1}});

TEST(PlacementTable, OneNodeNothingNamed) {
  EXPECT_EQ(table(pipeline({{.name = "read", .kind = "source"}, {.name = "fetch", .kind = "fetch"}}),
                  machine_of("one_node_smt.xml")),
            R"(
one_node_smt.xml: 1 package, 4 cores, 8 CPUs, 1 NUMA node
  node 0: CPUs 0-7, 16.00 GiB
  caches: L1 32.00 KiB for 2 CPUs, L2 1.00 MiB for 2 CPUs, L3 16.00 MiB for 8 CPUs

placement  node  cpus  threads  stages       why
default    any   any   8        read, fetch  no numa_node or cpus: not pinned; a thread for each of 8 CPUs

memory                 nodes  why
dense weights          any    one NUMA node, and none is named: not bound
KV pages               any    one NUMA node, and none is named: not bound
steps                  any    one NUMA node, and none is named: not bound
slots of fetch         any    one NUMA node, and none is named: not bound
scratch of all stages  any    one NUMA node, and none is named: not bound
)");
}

// A line holds what a terminal shows: long lists go on below.
TEST(PlacementTable, ManyStagesGoOnBelow) {
  std::vector<StageSpec> stages;
  for (int i = 0; i < 5; ++i)
    stages.push_back({.name = "stage_number_" + std::to_string(i), .kind = "source"});
  const std::string text = table(pipeline(stages), machine_of("one_node_smt.xml"));
  EXPECT_NE(text.find("placement  node  cpus  threads  stages                           why\n"
                      "default    any   any   8        stage_number_0, stage_number_1,  no numa_node"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n                                stage_number_2, stage_number_3,\n"
                      "                                stage_number_4\n"),
            std::string::npos)
      << text;
}

TEST(PlacementTable, TwoNodes) {
  EXPECT_EQ(table(kTwoSides, machine_of("two_nodes.xml")), R"(
two_nodes.xml: 2 packages, 8 cores, 8 CPUs, 2 NUMA nodes
  node 0: CPUs 0-3, 64.00 GiB, GPU card0, drive nvme0n1
  node 1: CPUs 4-7, 64.00 GiB, drive nvme1n1
  caches: L2 1.00 MiB for 1 CPU, L3 32.00 MiB for 4 CPUs

placement  node  cpus  threads  stages            why
default    any   any   8        read              no numa_node or cpus: not pinned; a thread for each of 8 CPUs
node 0     0     0-3   4        attend, fetch0    numa_node of stage attend: a thread for each of 4 cores; near drive nvme0n1
node 1     1     4-7   4        fetch1, compute1  numa_node of stage fetch1: a thread for each of 4 cores; near drive nvme1n1

memory                       nodes  why
dense weights                0-1    where attend, compute1 run
KV pages                     0      where attend runs
steps                        0-1    where attend, compute1 run
slots of fetch0              0      where the stage runs
slots of fetch1              1      where the stage runs
scratch of attend, fetch0    0      where the stage runs
scratch of read              0-1    where the stage runs
scratch of fetch1, compute1  1      where the stage runs
)");
}

TEST(PlacementTable, EightNodesWithSmt) {
  PipelineSpec spec = kTwoSides;
  spec.stages[4].numa_node = 7;
  spec.stages[4].workers = 6;
  spec.stages.push_back({.name = "sibling", .kind = "compute", .cpus = {36, 37}});
  EXPECT_EQ(table(spec, machine_of("eight_nodes_smt.xml")), R"(
eight_nodes_smt.xml: 2 packages, 32 cores, 64 CPUs, 8 NUMA nodes
  node 0: CPUs 0-3,32-35, 32.00 GiB
  node 1: CPUs 4-7,36-39, 32.00 GiB
  node 2: CPUs 8-11,40-43, 32.00 GiB
  node 3: CPUs 12-15,44-47, 32.00 GiB
  node 4: CPUs 16-19,48-51, 32.00 GiB
  node 5: CPUs 20-23,52-55, 32.00 GiB
  node 6: CPUs 24-27,56-59, 32.00 GiB
  node 7: CPUs 28-31,60-63, 32.00 GiB
  caches: L3 32.00 MiB for 8 CPUs

placement   node  cpus         threads  stages          why
default     any   any          64       read            no numa_node or cpus: not pinned; a thread for each of 64 CPUs
node 0      0     0-3,32-35    4        attend, fetch0  numa_node of stage attend: a thread for each of 4 cores, none for 4 SMT siblings
node 1      1     4-7,36-39    4        fetch1          numa_node of stage fetch1: a thread for each of 4 cores, none for 4 SMT siblings; shares CPUs 36-37 with cpus 36-37
node 7      7     28-31,60-63  6        compute1        numa_node of stage compute1: a thread for each of 4 cores, none for 4 SMT siblings; 6 for workers of stage compute1
cpus 36-37  1     36-37        2        sibling         cpus of stage sibling: a thread for each of 2 CPUs; shares CPUs 36-37 with node 1

memory                      nodes  why
dense weights               0-1,7  where attend, compute1, sibling run
KV pages                    0      where attend runs
steps                       0-1,7  where attend, compute1, sibling run
slots of fetch0             0      where the stage runs
slots of fetch1             1      where the stage runs
scratch of attend, fetch0   0      where the stage runs
scratch of read             0-7    where the stage runs
scratch of fetch1, sibling  1      where the stage runs
scratch of compute1         7      where the stage runs
)");
}

TEST(PlacementTable, VirtualPlacementOfTwoNodesOnOne) {
  PipelineSpec spec = kTwoSides;
  spec.virtual_placement = true;
  spec.stages[0].cpus = {17, 90};
  EXPECT_EQ(table(spec, machine_of("one_node_smt.xml")), R"(
one_node_smt.xml: 1 package, 4 cores, 8 CPUs, 1 NUMA node
  node 0: CPUs 0-7, 16.00 GiB
  caches: L1 32.00 KiB for 2 CPUs, L2 1.00 MiB for 2 CPUs, L3 16.00 MiB for 8 CPUs
virtual placement: CPUs and NUMA nodes of the pipeline stand for CPUs 0-7 of one_node_smt.xml in turn; memory is not bound

placement   node  cpus     threads  stages            why
cpus 17,90  any   1-2      2        read              cpus of stage read: a thread for each of 2 CPUs; shares CPUs 2 with node 0; shares CPUs 1 with node 1
node 0      any   0,2,4,6  2        attend, fetch0    numa_node of stage attend: a thread for each of 2 cores, none for 2 SMT siblings; shares CPUs 2 with cpus 17,90
node 1      any   1,3,5,7  2        fetch1, compute1  numa_node of stage fetch1: a thread for each of 2 cores, none for 2 SMT siblings; shares CPUs 1 with cpus 17,90

memory                 nodes  why
dense weights          any    virtual placement: not bound
KV pages               any    virtual placement: not bound
steps                  any    virtual placement: not bound
slots of fetch0        any    virtual placement: not bound
slots of fetch1        any    virtual placement: not bound
scratch of all stages  any    virtual placement: not bound
)");
}

TEST(Placement, SiblingsOfOtherPlacementsAreTold) {
  const PlacementPlan plan = place_pipeline(pipeline({{.name = "a", .kind = "attend", .cpus = {0, 1}},
                                                      {.name = "b", .kind = "compute", .cpus = {4, 6}}}),
                                            kKinds, machine_of("one_node_smt.xml"));
  EXPECT_EQ(plan.placements[0].reason,
            "cpus of stage a: a thread for each of 2 CPUs; CPUs 0 are SMT siblings of CPUs of cpus 4,6");
  EXPECT_EQ(plan.placements[1].reason,
            "cpus of stage b: a thread for each of 2 CPUs; CPUs 4 are SMT siblings of CPUs of cpus 0-1");
}

TEST(Placement, DrivesThatAreNearAreTold) {
  Machine machine = machine_of("two_nodes.xml");
  const PipelineSpec spec = pipeline({{.name = "a", .kind = "fetch", .numa_node = 1}});
  const auto reason = [&] { return place_pipeline(spec, kKinds, machine).placements[0].reason; };
  EXPECT_EQ(reason(), "numa_node of stage a: a thread for each of 4 cores; near drive nvme1n1");
  std::erase_if(machine.devices, [](const Device& device) { return device.name == "nvme1n1"; });
  EXPECT_EQ(reason(),
            "numa_node of stage a: a thread for each of 4 cores; no drive is near, nvme0n1 is near node 0");
}

TEST(Placement, ThreadsFollowQuotaThreadsAndWorkers) {
  Machine machine = machine_of("one_node_smt.xml");
  const auto threads_of = [&](const PipelineSpec& spec) { return place_pipeline(spec, kKinds, machine); };
  PipelineSpec spec = pipeline({{.name = "read", .kind = "source"},
                                {.name = "attend", .kind = "attend", .numa_node = 0},
                                {.name = "compute", .kind = "compute", .workers = 7, .cpus = {1, 2, 3}}});
  PlacementPlan plan = threads_of(spec);
  ASSERT_EQ(plan.placements.size(), 3u);
  EXPECT_EQ(plan.placements[0].threads, 8u);
  EXPECT_EQ(plan.placements[1].threads, 4u);  // a core each
  EXPECT_EQ(plan.placements[2].threads, 3u);
  EXPECT_EQ(plan.workers_of_stage, (Numbers{8, 4, 3}));
  EXPECT_EQ(plan.threads(), 15u);

  spec.stages[1].workers = 6;  // more than cores, by hand
  spec.stages[0].workers = 2;
  plan = threads_of(spec);
  EXPECT_EQ(plan.placements[1].threads, 6u);
  EXPECT_EQ(plan.workers_of_stage, (Numbers{2, 6, 3}));

  machine.cpu_quota = 1.5;
  machine.cpu_quota_origin = "cgroup cpu.max of /job";
  plan = threads_of(spec);
  for (const PlannedPlacement& placement : plan.placements) {
    EXPECT_EQ(placement.threads, 2u) << placement.name;
    EXPECT_NE(placement.reason.find("; 2 by CPU quota: cgroup cpu.max of /job"), std::string::npos)
        << placement.reason;
  }
  spec.threads = 5;  // by hand: the quota is not asked
  plan = threads_of(spec);
  EXPECT_EQ(plan.placements[0].threads, 5u);
  EXPECT_EQ(plan.placements[0].reason, "no numa_node or cpus: not pinned; threads is given");
  EXPECT_EQ(plan.placements[1].threads, 2u);
}

TEST(Placement, StagesOfTheSameCpusShareOne) {
  const PlacementPlan plan = place_pipeline(pipeline({{.name = "a", .kind = "compute", .cpus = {4, 5, 6, 7}},
                                                      {.name = "b", .kind = "compute", .numa_node = 1},
                                                      {.name = "c", .kind = "compute", .cpus = {4, 5}}}),
                                            kKinds, machine_of("two_nodes.xml"));
  EXPECT_EQ(plan.placement_of_stage, (std::vector<std::size_t>{0, 0, 1}));
  EXPECT_EQ(plan.placements[1].node, 1u);
}

// Nothing is there of what a stage names: check_placement says so, and the plan is still one that can be
// built.
TEST(Placement, WhatIsMissingFallsToTheDefault) {
  Machine machine = machine_of("two_nodes.xml");
  machine.nodes.push_back({.index = 2, .cpus = {}, .memory_bytes = 1 << 30});  // memory alone
  const PipelineSpec spec = pipeline({{.name = "a", .kind = "compute", .numa_node = 2},
                                      {.name = "b", .kind = "compute", .numa_node = 5},
                                      {.name = "c", .kind = "compute", .cpus = {99}}});
  const PlacementPlan plan = place_pipeline(spec, kKinds, machine);
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.placements[0].name, "default");
  PipelineProblems problems;
  check_placement(spec, machine, problems);
  EXPECT_EQ(problems.lines,
            (std::vector<std::string>{
                "stages.a.numa_node: no CPUs of NUMA node 2 may be used on two_nodes.xml; expected one of "
                "0-1",
                "stages.b.numa_node: no NUMA node 5 may be used on two_nodes.xml; expected one of 0-1",
                "stages.c.cpus: CPUs 99 may not be used on two_nodes.xml; expected some of 0-7"}));
}

// Rules for any pipeline on any machine, counted out by hand.
TEST(Placement, RulesHoldForRandomPipelines) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    Machine machine =
        machine_of(std::vector{"one_node_smt.xml", "two_nodes.xml", "eight_nodes_smt.xml"}[random() % 3]);
    if (random() % 3 == 0) machine.cpu_quota = 0.5 + random() % 5;
    PipelineSpec spec;
    if (random() % 4 == 0) spec.threads = 1 + random() % 9;
    for (std::uint32_t i = 0; i < 1 + random() % 7; ++i) {
      StageSpec stage;
      stage.name = "s" + std::to_string(i);
      stage.kind = kKinds[random() % std::size(kKinds)]->kind;
      if (random() % 3 == 0) stage.workers = 1 + random() % 12;
      if (random() % 3 == 0) {
        stage.numa_node = machine.nodes[random() % machine.nodes.size()].index;
      } else if (random() % 2 == 0) {
        std::set<std::uint32_t> cpus;
        for (int n = 0; n < 3; ++n) cpus.insert(machine.cpus[random() % machine.cpus.size()]);
        stage.cpus.assign(cpus.begin(), cpus.end());
      }
      spec.stages.push_back(stage);
    }
    const PlacementPlan plan = place_pipeline(spec, kKinds, machine);
    ASSERT_EQ(placement_table(spec, kKinds, machine, plan),
              placement_table(spec, kKinds, machine, place_pipeline(spec, kKinds, machine)));
    ASSERT_EQ(plan.placement_of_stage.size(), spec.stages.size());
    std::set<std::size_t> used;
    std::set<std::uint32_t> kv_nodes;
    bool names_node = false;
    for (std::size_t i = 0; i < spec.stages.size(); ++i) names_node |= spec.stages[i].numa_node.has_value();
    for (std::size_t i = 0; i < spec.stages.size(); ++i) {
      const StageSpec& stage = spec.stages[i];
      const PlannedPlacement& placement = plan.placements.at(plan.placement_of_stage[i]);
      used.insert(plan.placement_of_stage[i]);
      const Numbers wanted = stage.numa_node ? machine.find_node(*stage.numa_node)->cpus : stage.cpus;
      EXPECT_EQ(placement.cpus, wanted);
      EXPECT_GE(placement.threads, 1u);
      EXPECT_FALSE(placement.reason.empty());
      if (!wanted.empty()) {
        EXPECT_LE(placement.threads, wanted.size());
      }
      if (machine.cpu_quota > 0 && (!wanted.empty() || !spec.threads)) {
        EXPECT_LT(placement.threads, machine.cpu_quota + 1);
      }
      EXPECT_EQ(plan.workers_of_stage[i],
                std::min(stage.workers.value_or(placement.threads), placement.threads));
      // Memory: on exactly the nodes of the CPUs.
      std::set<std::uint32_t> nodes;
      for (const NumaNode& node : machine.nodes) {
        for (const std::uint32_t cpu : wanted.empty() ? machine.cpus : wanted) {
          if (std::count(node.cpus.begin(), node.cpus.end(), cpu) != 0) nodes.insert(node.index);
        }
      }
      if (machine.nodes.size() == 1 && !names_node) nodes.clear();
      EXPECT_EQ(plan.memory_of_stage[i].nodes, Numbers(nodes.begin(), nodes.end()));
      if (stage.kind == "attend") kv_nodes.insert(nodes.begin(), nodes.end());
      if (wanted.empty()) continue;
      std::set<std::uint32_t> near;
      for (const NumaNode& node : machine.nodes) {
        if (std::includes(node.cpus.begin(), node.cpus.end(), wanted.begin(), wanted.end()))
          near.insert(node.index);
      }
      EXPECT_EQ(placement.node ? std::set<std::uint32_t>{*placement.node} : std::set<std::uint32_t>{}, near);
    }
    EXPECT_EQ(plan.kv.nodes, Numbers(kv_nodes.begin(), kv_nodes.end()));
    EXPECT_EQ(used.size(), plan.placements.size());
  }
}

TEST(CheckMemory, AddsUpWhatIsGiven) {
  Machine machine = machine_of("two_nodes.xml");
  machine.memory_limit_free = (std::uint64_t{80} << 30) / 9 + 10;
  machine.memory_limit_origin = "cgroup memory.max of /job";
  PipelineSpec spec;
  spec.memory.dynamic = {
      SizeSetting::Kind::bytes, std::uint64_t{5} << 30, 0, {Origin::Kind::file, "p.yaml", 2, 9}};
  spec.memory.experts = {
      SizeSetting::Kind::bytes, std::uint64_t{3} << 30, 0, {Origin::Kind::file, "p.yaml", 3, 9}};
  PipelineProblems problems;
  check_memory(spec, machine, problems);
  EXPECT_TRUE(problems.lines.empty()) << problems.lines[0];
  spec.memory.static_pool = {SizeSetting::Kind::bytes, 4096, 0, {Origin::Kind::file, "p.yaml", 4, 9}};
  check_memory(spec, machine, problems);
  EXPECT_EQ(
      problems.lines,
      (std::vector<std::string>{
          "p.yaml:2:9: memory.dynamic: the memory given (memory.static 4.00 KiB, memory.dynamic 5.00 GiB, "
          "memory.experts 3.00 GiB) is more than two_nodes.xml has; expected at most 8.00 GiB, 90 % of what "
          "is "
          "free of cgroup memory.max of /job"}));
  spec.memory.dynamic.bytes = spec.memory.experts.bytes = ~std::uint64_t{0};
  problems = {};
  check_memory(spec, machine, problems);
  EXPECT_EQ(problems.lines.size(), 1u);
  spec.memory.dynamic.kind = spec.memory.experts.kind = SizeSetting::Kind::automatic;
  problems = {};
  check_memory(spec, machine, problems);
  EXPECT_TRUE(problems.lines.empty());
}

TEST(ValueNotes, NameTheLimitThatCounts) {
  Machine machine = machine_of("one_node_smt.xml");
  PipelineSpec spec = pipeline({{.name = "read", .kind = "source", .workers = 12},
                                {.name = "attend", .kind = "attend", .numa_node = 0}});
  const auto notes = [&] { return machine_notes(spec, machine, place_pipeline(spec, kKinds, machine)); };
  EXPECT_EQ(notes().at("threads"), "8: CPUs 0-7 of the machine file");
  EXPECT_EQ(notes().at("stages.read.workers"), "8: no more threads of placement default");
  EXPECT_EQ(notes().at("stages.attend.workers"), "4: all threads of placement node 0");
  EXPECT_EQ(notes().at("stages.attend.cpus"), "0-7: those of placement node 0");
  EXPECT_EQ(notes().at("memory.experts"),
            "at most 12.80 GiB: 80 % of the available memory, minus the other pools");
  machine.cpu_quota = 2;
  machine.cpu_quota_origin = "cgroup cpu.max of /job";
  machine.memory_limit_free = std::uint64_t{5} << 30;
  machine.memory_limit_origin = "cgroup memory.limit_in_bytes of /job";
  EXPECT_EQ(notes().at("threads"), "2: CPU quota of 2, cgroup cpu.max of /job");
  EXPECT_EQ(notes().at("memory.experts"),
            "at most 4.50 GiB: 90 % of what is free of cgroup memory.limit_in_bytes of /job, minus the other "
            "pools");
  spec.threads = 3;
  EXPECT_FALSE(notes().contains("threads"));
}

}  // namespace
}  // namespace colibri
