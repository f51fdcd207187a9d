// Every pool by its formula, every pool refused by name when it is too small, and the process within its
// plan.
#include "runtime/memory/memory_plan.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "runtime/memory/slot_shares.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/engine/shared_out_pipeline.hpp"
#include "tests/support/golden_model.hpp"
#include "topology/machine.hpp"

namespace colibri::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kProcess = 20 * kMiB;

class MemoryPlanTest : public ::testing::Test {
 protected:
  Result<MemoryPlan> plan(Settings settings, std::uint64_t available = 4096 * kMiB,
                          const Workload& workload = {}) const {
    Machine machine;
    machine.cpus = {0, 1};
    machine.memory_available = available;
    settings.insert(settings.begin(), {"memory.dynamic", "auto"});  // not the size that other tests use
    return plan_memory(*container_, pipeline_with(settings), registry_, machine, kProcess, workload);
  }
  // Records that a job of so many rows reads with this plan: in each step those that are not resident.
  std::uint64_t reads(const MemoryPlan& made, std::uint64_t rows) const {
    const std::uint64_t steps = (rows + made.inputs.max_rows - 1) / made.inputs.max_rows;
    return records() + (steps - 1) * (records() - (made.slots - made.transit));
  }
  std::uint64_t records() const { return std::uint64_t{spec().num_moe_layers()} * spec().num_experts; }
  const ModelSpec& spec() const { return container_->spec(); }
  // A setting that is too small is refused, by name; what the message asks for is enough.
  void expect_refused(const std::string& pool, const std::string& value, const Settings& others = {}) const {
    Settings settings = others;
    settings.emplace_back("memory." + pool, value);
    const auto refused = plan(settings);
    ASSERT_FALSE(refused.is_ok()) << pool;
    EXPECT_EQ(refused.status().code(), ErrorCode::invalid_input);
    const std::string text(refused.status().message());
    EXPECT_NE(text.find("memory." + pool + " is too small"), std::string::npos) << text;
    std::smatch needed;
    ASSERT_TRUE(std::regex_search(text, needed, std::regex("\\(([0-9]+) bytes\\) needed"))) << text;
    settings.back().second = needed[1];
    EXPECT_TRUE(plan(settings).is_ok()) << plan(settings).status().to_string();
    settings.back().second = std::to_string(std::stoull(needed[1]) - 1);
    EXPECT_FALSE(plan(settings).is_ok());
  }

  const std::shared_ptr<const Container> container_ =
      Container::open(golden_container("qwen2_moe", "config.json", "auto")).value();
  const Registry registry_ = builtin_registry();
};

TEST_F(MemoryPlanTest, SlotsForEachKindOfSetting) {
  const std::uint64_t slot = container_->layout().record_bytes;
  ASSERT_EQ(records(), 16U);  // two MoE layers of 8
  struct Case {
    std::string setting;
    std::uint64_t slots;
  };
  for (const Case& one : std::vector<Case>{{"100%", 16},
                                           {"50%", 8},
                                           {"25%", 4},
                                           {"1%", 1},
                                           {"min", 1},
                                           {"auto", 16},
                                           {std::to_string(3 * slot), 3},
                                           {std::to_string(3 * slot + slot - 1), 3},
                                           {"100GiB", 16}}) {
    const auto planned = plan({{"memory.experts", one.setting}});
    ASSERT_TRUE(planned.is_ok()) << one.setting << ": " << planned.status().to_string();
    EXPECT_EQ(planned.value().slots, one.slots) << one.setting;
    EXPECT_EQ(planned.value().slot_bytes, slot);
    EXPECT_EQ(planned.value().transit, one.slots == 16 ? 0 : std::max<std::uint64_t>(1, one.slots / 2))
        << one.setting;
  }
  // Few bytes in flight need few slots in transit, but some: what is computed has one, too.
  for (const auto& [records, transit] : {std::pair{2U, 4U}, {5U, 5U}, {7U, 6U}}) {
    EXPECT_EQ(plan({{"memory.experts", "75%"},
                    {"steps.max_rows", "16"},
                    {"stages.fetch.inflight_bytes", std::to_string(records * slot)}})
                  .value()
                  .transit,
              transit);
  }
}

// Any shares of any number of slots: one each at least, none more than its records, the rest in proportion.
TEST_F(MemoryPlanTest, MoreWavesThanRingsHoldAreRefused) {
  const auto refused = plan({{"steps.max_rows", "100000"}, {"steps.wave_rows", "1"}});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().to_string().find(
                "steps.wave_rows: too many waves: 100000 in 1 steps of 100000 rows; expected "
                "at most 32767: raise steps.wave_rows or lower steps.max_rows"),
            std::string::npos)
      << refused.status().to_string();
}

// Prompts that are scored or embedded: as many rows a step as read least, of all sizes that fit.
TEST_F(MemoryPlanTest, RowsForPromptsReadLeast) {
  const auto smallest = plan({{"memory.experts", "min"}});
  ASSERT_TRUE(smallest.is_ok()) << smallest.status().to_string();
  for (const std::uint64_t rows : {std::uint64_t{600}, std::uint64_t{5000}, std::uint64_t{40000}}) {
    const Workload workload{.prompts = rows / 50, .rows = rows, .longest_rows = 100};
    const auto roomy = plan({}, 4096 * kMiB, workload);
    ASSERT_TRUE(roomy.is_ok()) << roomy.status().to_string();
    EXPECT_EQ(reads(*roomy, rows), records()) << "all is read once";
    for (std::uint64_t more = 2; more < 120; more += 9) {
      // usable is 80 % of what is available
      const std::uint64_t available = (smallest->total_bytes + more * kMiB) * 5 / 4;
      const auto chosen = plan({}, available, workload);
      ASSERT_TRUE(chosen.is_ok()) << chosen.status().to_string();
      EXPECT_LE(chosen->total_bytes, chosen->usable_bytes);
      std::uint64_t least = ~std::uint64_t{0};
      for (std::uint64_t steps = 1; steps <= rows / 512 + 1; ++steps) {
        const std::uint64_t size = std::max<std::uint64_t>((rows + steps - 1) / steps, 512);
        const auto fixed = plan({{"steps.max_rows", std::to_string(size)}}, available, workload);
        if (fixed) least = std::min(least, reads(*fixed, rows));
      }
      // Many steps are tried in leaps of an eighth.
      EXPECT_LE(static_cast<double>(reads(*chosen, rows)), 1.13 * static_cast<double>(least))
          << rows << " rows, " << more << " MiB, " << chosen->inputs.max_rows << " a step";
    }
  }
}

// Keys and values of such steps: for one layer at a time.
TEST_F(MemoryPlanTest, PagesForPromptsHoldOneRunOfLayers) {
  const Workload workload{.prompts = 100, .rows = 16000, .longest_rows = 160};
  const auto planned = plan({{"memory.experts", "50%"}}, 4096 * kMiB, workload);
  ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
  ASSERT_GE(planned->inputs.max_rows, 16000U);
  std::uint32_t run = 0, longest_run = 0;
  for (const LayerSpec& layer : spec().layers) {
    longest_run = std::max(longest_run, ++run);
    if (layer.moe) run = 0;
  }
  // Exactly filled blocks, and one more a prompt that need not be full.
  const std::uint64_t blocks = planned->inputs.max_rows / 16 + 1 + 100;
  const std::uint64_t in_page = spec().num_layers() / longest_run;
  EXPECT_LE(planned->kv_pages, (blocks + in_page - 1) / in_page);
  EXPECT_GE(planned->kv_pages * in_page, 1000U) << "16,000 rows are 1,000 blocks";
  // A prompt that no step can hold has pages for all layers.
  const auto long_one =
      plan({{"steps.max_rows", "64"}}, 4096 * kMiB, {.prompts = 2, .rows = 300, .longest_rows = 200});
  ASSERT_TRUE(long_one.is_ok());
  EXPECT_GE(long_one->kv_pages, std::min<std::uint64_t>(200, spec().max_seq_len) / 16);
}

TEST(WaveRows, MoreThanAStepHasAreSaid) {
  const auto container = golden_container("qwen3_moe", "config.json", "auto");
  for (const auto& [wave_rows, lines] : {std::pair{"8", 0U}, std::pair{"64", 1U}}) {
    std::vector<std::string> log;
    EngineOptions options;
    options.log = [&log](std::string line) {
      if (line.find("steps.wave_rows") != std::string::npos) log.push_back(std::move(line));
    };
    const auto engine = Engine::open(
        container,
        pipeline_with({{"memory.dynamic", "8MiB"}, {"steps.max_rows", "16"}, {"steps.wave_rows", wave_rows}}),
        options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    ASSERT_EQ(log.size(), lines);
    if (lines > 0) {
      EXPECT_EQ(log[0], "steps.wave_rows is 64, a step has at most 16 rows: so have its waves");
    }
  }
}

TEST(SlotShares, AreInProportionToTheRecords) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<FetchPart> fetches(1 + random() % 5);
    std::uint64_t records = 0;
    for (FetchPart& fetch : fetches) {
      fetch.records = 1 + random() % (round % 2 == 0 ? 8 : 5000);
      fetch.inflight_bytes = random() % 100;
      fetch.bytes_meanwhile = random() % 2 == 0 ? 0 : random() % 1000;
      records += fetch.records;
    }
    const std::uint64_t slots = fetches.size() + random() % (records - fetches.size() + 1);
    const std::vector<SlotShare> shares = share_out_slots(fetches, slots, 10);
    ASSERT_EQ(shares.size(), fetches.size());
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_EQ(shares[i].first, next) << "shares follow each other";
      next += shares[i].slots;
      EXPECT_GE(shares[i].slots, 1U);
      EXPECT_LE(shares[i].slots, fetches[i].records);
      // Beyond the first slot and the first record of each, exact shares rounded up or down.
      const double exact = records == fetches.size() ? 0
                                                     : static_cast<double>(slots - fetches.size()) *
                                                           static_cast<double>(fetches[i].records - 1) /
                                                           static_cast<double>(records - fetches.size());
      EXPECT_LE(std::fabs(static_cast<double>(shares[i].slots - 1) - exact), 1.0);
      if (shares[i].slots == fetches[i].records) {
        EXPECT_EQ(shares[i].transit, 0U);
      } else {
        // Three tenths, but 8 at least and no more than are in flight, 4 to 16 of them; or what is read
        // meanwhile, if that is more; half at most.
        const std::uint64_t in_flight = std::clamp<std::uint64_t>(fetches[i].inflight_bytes / 10, 4, 16);
        const std::uint64_t share = std::max<std::uint64_t>(shares[i].slots * 3ULL / 10, 8);
        const std::uint64_t wanted = std::max(std::min(in_flight, share), fetches[i].bytes_meanwhile / 10);
        EXPECT_EQ(shares[i].transit, std::min(wanted, std::max<std::uint64_t>(shares[i].slots / 2, 1)));
      }
    }
    EXPECT_EQ(next, slots);
  }
  EXPECT_TRUE(share_out_slots({}, 4, 10).empty());
}

// Attention of OLMoE-1B-7B: four matrices of 2048 x 2048. A drive reads a byte while 100 multiply-adds are
// done.
TEST_F(MemoryPlanTest, LargeStepsLeaveSlotsForWhatIsReadBetweenLayers) {
  ModelSpec olmoe = spec();
  olmoe.hidden_size = 2048;
  olmoe.attention.num_heads = olmoe.attention.num_kv_heads = 16;
  olmoe.attention.head_dim = 128;
  olmoe.shared_expert.intermediate_size = 0;
  const PipelineSpec pipeline = pipeline_with({});
  const std::uint64_t record = 6'684'672;  // int8, 1024 wide
  for (const auto& [rows, slots] :
       {std::pair{32U, 0U}, {128U, 3U}, {512U, 12U}, {1024U, 25U}, {2048U, 51U}}) {
    const std::vector<FetchPart> fetches = fetch_parts(pipeline, registry_, olmoe, rows);
    ASSERT_EQ(fetches.size(), 1U);
    EXPECT_EQ(fetches[0].transit_need(record).between_layers, slots) << rows;
  }
  // Two fetches read half of it each; a shared expert makes it more.
  const SharedOut two{"two", {{"0-3"}, {"4-"}}, {{"all"}}, {{"all"}}};
  PipelineProblems problems;
  const PipelineSpec shared_out =
      parse_pipeline(shared_out_yaml(two), "shared.yaml", registry_.infos(), {}, problems);
  EXPECT_EQ(fetch_parts(shared_out, registry_, olmoe, 2048)[1].transit_need(record).between_layers, 25U);
  olmoe.shared_expert.intermediate_size = 4096;
  EXPECT_EQ(fetch_parts(pipeline, registry_, olmoe, 1024)[0].transit_need(record).between_layers, 64U);
}

TEST_F(MemoryPlanTest, EveryFetchHasSlots) {
  const std::uint64_t slot = container_->layout().record_bytes;
  const auto plan_of = [&](const std::string& experts) {
    Machine machine;
    machine.cpus = {0, 1};
    machine.memory_available = 4096 * kMiB;
    const std::vector<Override> overrides = {{"memory.experts", experts, {}}, {"memory.dynamic", "auto", {}}};
    PipelineProblems problems;
    const SharedOut shape{"three", {{"0"}, {"1-4"}, {"5-", ", inflight_bytes: 4096"}}, {{"all"}}, {{"all"}}};
    const PipelineSpec spec =
        parse_pipeline(shared_out_yaml(shape), "shared.yaml", registry_.infos(), overrides, problems);
    EXPECT_TRUE(problems.to_status().is_ok()) << problems.to_status().to_string();
    return plan_memory(*container_, spec, registry_, machine, kProcess);
  };
  // Two layers of 8 experts: 2, 8 and 6 records.
  struct Case {
    const char* experts;
    std::vector<std::uint32_t> slots, transit;
  };
  for (const Case& one : {Case{"100%", {2, 8, 6}, {0, 0, 0}}, Case{"min", {1, 1, 1}, {1, 1, 1}},
                          Case{"1%", {1, 1, 1}, {1, 1, 1}}, Case{"50%", {1, 4, 3}, {1, 2, 1}}}) {
    SCOPED_TRACE(one.experts);
    const auto planned = plan_of(one.experts);
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    ASSERT_EQ(planned->slot_shares.size(), 3U);
    std::uint64_t slots = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(planned->slot_shares[i].stage, "fetch" + std::to_string(i));
      EXPECT_EQ(planned->slot_shares[i].share.slots, one.slots[i]);
      EXPECT_EQ(planned->slot_shares[i].share.transit, one.transit[i]);
      slots += one.slots[i];
    }
    EXPECT_EQ(planned->slots, slots);
    EXPECT_NE(planned->to_table().find("fetch1: " + std::to_string(one.slots[1]) + " slots"),
              std::string::npos);
    const nlohmann::json json = nlohmann::json::parse(planned->to_json());
    EXPECT_EQ(json.at("slot_shares").at(1).at("slots"), one.slots[1]);
  }
  const auto refused = plan_of(std::to_string(3 * slot - 1));
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("(" + std::to_string(3 * slot) + " bytes) needed"),
            std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(plan_of(std::to_string(3 * slot)).is_ok());
}

// Stages may have more threads than the default placement: memory is for the widest one.
TEST_F(MemoryPlanTest, MemoryOfStagesIsForTheirThreads) {
  const MemoryPlan wide = plan({{"threads", "2"}}).value();
  const MemoryPlan narrow = plan({{"threads", "1"}}).value();
  const MemoryPlan placed = plan({{"threads", "1"}, {"stages.route.cpus", "0-1"}}).value();
  EXPECT_NE(narrow.stage_bytes, wide.stage_bytes);
  EXPECT_EQ(placed.stage_bytes, wide.stage_bytes);
  EXPECT_EQ(placed.inputs.threads, 2U);
  EXPECT_EQ(placed.placement.threads(), 3U);
}

TEST_F(MemoryPlanTest, AutomaticSlotsFillWhatIsLeft) {
  Settings settings = {{"memory.dynamic", "32MiB"}, {"memory.experts", "min"}};
  const MemoryPlan least = plan(settings).value();
  // 80 % of what is available is usable: just enough for a region of slots of 2 MiB, the smallest there is.
  const std::uint64_t available = least.total_bytes * 10 / 8 + 4096;
  settings.back().second = "auto";
  const auto tight = plan(settings, available);
  ASSERT_TRUE(tight.is_ok()) << tight.status().to_string();
  EXPECT_LE(tight.value().total_bytes, tight.value().usable_bytes);
  EXPECT_GE(tight.value().slots, 1U);
  EXPECT_EQ(tight.value().usable_bytes, available / 10 * 8 + (available % 10) * 8 / 10);
}

// The region of slots is rounded up: wherever what is left ends, that must not be more than there is.
TEST_F(MemoryPlanTest, AutomaticSlotsFitWhateverIsLeft) {
  const auto demo = std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs/demo/checkpoint";
  const auto container = Container::open(container_of(demo, "config.json", "auto")).value();
  Machine machine;
  machine.cpus = {0, 1};
  const auto pipeline = pipeline_with({{"memory.dynamic", "32MiB"}, {"memory.experts", "auto"}});
  for (std::uint64_t extra = 0; extra < 8 * kMiB; extra += 100'000) {
    machine.memory_available = 100 * kMiB + extra;
    const auto planned = plan_memory(*container, pipeline, registry_, machine, kProcess, {});
    ASSERT_TRUE(planned.is_ok()) << extra << ": " << planned.status().to_string();
    EXPECT_LE(planned->total_bytes, planned->usable_bytes);
    EXPECT_GT(planned->total_bytes + 4 * kMiB, planned->usable_bytes) << "room for more slots";
    EXPECT_LT(planned->slots, 192U);
  }
}

TEST_F(MemoryPlanTest, EveryPoolAddsUp) {
  for (const char* in_flight : {"1", "2"}) {
    const MemoryPlan planned =
        plan({{"steps.in_flight", in_flight}, {"steps.max_rows", "64"}, {"memory.experts", "50%"}}).value();
    std::map<std::string, std::uint64_t> pools;
    for (const PlanLine& line : planned.lines) pools[line.pool] += line.bytes;
    ASSERT_EQ(pools.size(), 5U);  // static, dynamic, scratch, experts, process
    std::uint64_t sum = 0;
    for (const auto& [pool, bytes] : pools) {
      EXPECT_GT(bytes, 0U) << pool;
      sum += bytes;
    }
    EXPECT_GE(planned.total_bytes, sum);
    EXPECT_LT(planned.total_bytes, sum + 6 * 2 * kMiB);  // regions are rounded to 2 MiB
    EXPECT_EQ(pools["static"], container_->dense_bytes());
    EXPECT_EQ(pools["experts"], planned.slots * planned.slot_bytes);
    EXPECT_GE(pools["process"], kProcess);
    // Keys and values of 16 positions of every layer, in f32.
    EXPECT_GE(planned.kv_page_bytes,
              std::uint64_t{2} * 16 * spec().attention.kv_size() * sizeof(float) * spec().num_layers());
    EXPECT_EQ(planned.longest_request(), planned.kv_pages * 16);
    EXPECT_GE(planned.longest_request(), spec().max_seq_len);
    const nlohmann::json json = nlohmann::json::parse(planned.to_json());
    EXPECT_EQ(json.at("planned_bytes"), planned.total_bytes);
    EXPECT_EQ(json.at("expert_slots"), planned.slots);
    EXPECT_EQ(json.at("kv_pages"), planned.kv_pages);
  }
  const auto one = plan({{"steps.in_flight", "1"}, {"steps.max_rows", "64"}}).value();
  const auto two = plan({{"steps.in_flight", "2"}, {"steps.max_rows", "64"}}).value();
  EXPECT_EQ(one.step_bytes, two.step_bytes);
}

TEST_F(MemoryPlanTest, PoolsThatAreTooSmallAreRefusedByName) {
  expect_refused("static", "1");
  expect_refused("static", "4096");
  expect_refused("scratch", "1");
  expect_refused("dynamic", "1");
  expect_refused("dynamic", "64KiB", {{"steps.max_rows", "2048"}});
  expect_refused("experts", "1");
  // A share of the usable memory counts the same.
  Machine machine;
  machine.cpus = {0};
  machine.memory_available = 4096 * kMiB;
  for (SizeSetting MemorySpec::*pool :
       {&MemorySpec::static_pool, &MemorySpec::scratch, &MemorySpec::dynamic}) {
    PipelineSpec pipeline = pipeline_with({});
    pipeline.memory.*pool = {.kind = SizeSetting::Kind::percent, .percent = 1e-4};
    const auto refused = plan_memory(*container_, pipeline, registry_, machine, kProcess);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().to_string().find("too small: 3.35 KiB"), std::string::npos)
        << refused.status().to_string();
  }
}

TEST_F(MemoryPlanTest, WhatDoesNotFitIsRefusedWithTheList) {
  const auto refused = plan({{"memory.experts", "100%"}}, 16 * kMiB);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::capacity);
  const std::string text = refused.status().to_string();
  for (const char* part :
       {"does not fit", "static", "dynamic", "scratch", "experts", "process", "KV:", "slots of", "total"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  // An engine says the same, and has allocated nothing.
  const std::uint64_t before = resident_bytes();
  const auto engine = Engine::open(golden_container("qwen2_moe", "config.json", "auto"),
                                   pipeline_with({{"memory.dynamic", "1000TiB"}}), {});
  ASSERT_FALSE(engine.is_ok());
  EXPECT_EQ(engine.status().code(), ErrorCode::capacity);
  EXPECT_LT(resident_bytes(), before + 4 * kMiB);
}

// The demo model in this process, converted by another one: a conversion has a peak of its own.
TEST(MemoryUse, StaysWithinThePlanAlsoInALongJob) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  const auto checkpoint =
      std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint";
  golden_container("olmoe_f32", "config.json", "auto");  // makes the folder that both processes use
  const pid_t child = ::fork();
  if (child == 0) ::_exit(container_of(checkpoint, "config.json", "auto").empty() ? 1 : 0);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto engine =
      open_engine(container_of(checkpoint, "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(engine, nullptr);
  auto run = [&](std::uint64_t requests) {
    Request request = generate_request({1, 5, 9, 13, 200, 17, 21}, 3);
    request.ignore_eos = true;
    RepeatedSource source(request, requests);
    struct CountingSink final : ResultSink {
      Status result(RequestResult&& result) override {
        count += result.error.is_ok() ? 1 : 0;
        return {};
      }
      Status flush() override { return {}; }
      std::uint64_t count = 0;
    } sink;
    const auto report = engine->run({.source = &source, .sink = &sink});
    EXPECT_TRUE(report.is_ok());
    EXPECT_EQ(sink.count, requests);
    EXPECT_EQ(report.value().planned_bytes, engine->plan().total_bytes);
    EXPECT_LE(static_cast<double>(report.value().peak_rss_bytes),
              1.10 * static_cast<double>(report.value().planned_bytes) + 16.0 * kMiB);
    return report.value().peak_rss_bytes;
  };
  // The first job touches its pages; a job of many times the requests needs no more of them.
  run(20);
  const std::uint64_t short_job = run(600);  // enough to fill the steps and the line of those that wait
  const std::uint64_t long_job = run(4000);
  EXPECT_LE(long_job, short_job + 8 * kMiB);
}

}  // namespace
}  // namespace colibri::testing
