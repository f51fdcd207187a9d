// Parameters that change while the engine is open: what is refused and how, and that what is set holds in the
// job that runs and in the next ones. What each parameter does to its stage is tested beside the stage.
#include "runtime/engine/live_parameters.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen3_moe";

class LiveParametersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_ = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "50%"}});
    ASSERT_NE(engine_, nullptr);
  }
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (const GoldenCase& one : golden_cases(kModel)) all.push_back(generate_request(one.prompt, 4));
    return all;
  }
  static std::uint64_t metric(const RunReport& report, std::string_view stage, std::string_view name) {
    for (const StageReport& one : report.stages) {
      if (one.name == stage) return one.metric(name);
    }
    ADD_FAILURE() << "no stage " << stage;
    return 0;
  }
  std::string error(std::string_view path, std::string_view value) {
    return engine_->set_parameter(path, value).to_string();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(LiveParametersTest, HoldForTheJobsThatFollow) {
  const JobRun before = run_job(*engine_, requests());
  EXPECT_GT(metric(before.report, "predict", "guesses_total"), 0U);
  ASSERT_TRUE(engine_->set_parameter("stages.predict.method", "none").is_ok());
  const JobRun off = run_job(*engine_, requests());
  EXPECT_EQ(metric(off.report, "predict", "guesses_total"), 0U);
  EXPECT_EQ(metric(run_job(*engine_, requests()).report, "predict", "guesses_total"), 0U);
  ASSERT_TRUE(engine_->set_parameter("stages.predict.method", "next_router").is_ok());
  const JobRun on = run_job(*engine_, requests());
  EXPECT_GT(metric(on.report, "predict", "guesses_total"), 0U);
  ASSERT_EQ(before.results.size(), off.results.size());
  for (std::size_t i = 0; i < off.results.size(); ++i)
    EXPECT_EQ(off.results[i].tokens, before.results[i].tokens);
}

// Requests that set a parameter when the first of them is asked for: before anything was routed.
class SettingSource final : public RequestSource {
 public:
  SettingSource(Engine& engine, Request request) : engine_(engine), inner_(std::move(request), 8) {}
  Pull pull(Request& request) override {
    if (inner_.pulled() == 0) status = engine_.set_parameter("stages.predict.method", "none");
    return inner_.pull(request);
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}
  Status status;

 private:
  Engine& engine_;
  RepeatedSource inner_;
};

TEST_F(LiveParametersTest, HoldInTheJobThatRuns) {
  SettingSource source(*engine_, requests().front());
  CollectingSink sink;
  const auto report = engine_->run({.source = &source, .sink = &sink});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_TRUE(source.status.is_ok()) << source.status.to_string();
  EXPECT_EQ(sink.results.size(), 8U);
  EXPECT_GT(metric(*report, "predict", "rows_total") + metric(*report, "route", "rows_total"), 0U);
  EXPECT_EQ(metric(*report, "predict", "guesses_total"), 0U);
}

TEST_F(LiveParametersTest, ManyThreadsMaySetWhileAJobRuns) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (const auto& [path, values] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"stages.predict.method", {"none", "next_router", "sweep", "auto"}},
           {"stages.fetch.hints", {"false", "true"}},
           {"stages.admit.waiting", {"1", "auto", "1000"}},
           {"stages.write.flush_seconds", {"0", "3600", "0.2"}}}) {
    threads.emplace_back([this, &done, path = path, values = values] {
      for (std::size_t i = 0; !done.load(); ++i) {
        EXPECT_TRUE(engine_->set_parameter(path, values[i % values.size()]).is_ok());
      }
    });
  }
  std::vector<Request> many;
  for (int i = 0; i < 8; ++i) {
    for (Request& request : requests()) many.push_back(std::move(request));
  }
  const JobRun run = run_job(*engine_, many);
  done = true;
  for (std::thread& thread : threads) thread.join();
  const JobRun expected = run_job(*engine_, requests());
  for (std::size_t i = 0; i < run.results.size(); ++i) {
    EXPECT_EQ(run.results[i].tokens, expected.results[i % expected.results.size()].tokens) << i;
  }
}

TEST_F(LiveParametersTest, RefusesByNameWithWhatToDo) {
  const struct {
    const char *path, *value, *words;
  } cases[] = {
      {"memory.experts", "25%",
       "only parameters of stages may change while an engine is open: 'memory.experts'; expected "
       "stages.STAGE.PARAMETER; set others in the pipeline, before Engine::open"},
      {"stages.predict", "none", "expected stages.STAGE.PARAMETER"},
      {"stages.predikt.method", "none",
       "the pipeline has no such stage: 'predikt'; expected one of read, admit"},
      {"stages.predikt.method", "none", "did you mean 'predict'?"},
      {"stages.predict.methods", "none",
       "the stage has no such parameter: 'stages.predict.methods'; while an engine is open, of this stage "
       "may method; "
       "did you mean 'method'?"},
      {"stages.attend.kv_type", "bf16",
       "the parameter cannot change while an engine is open: stages.attend.kv_type; none of this stage's "
       "may; set it in "
       "the pipeline, before Engine::open"},
      {"stages.compute.workers", "1",
       "the parameter cannot change while an engine is open: stages.compute.workers"},
      {"stages.predict.method", "guess",
       "stages.predict.method: 'guess' is not a choice; expected one of auto, none, next_router, sweep"},
      {"stages.admit.waiting", "0", "stages.admit.waiting: '0' is out of range"},
      {"stages.write.flush_seconds", "soon", "stages.write.flush_seconds: 'soon' is not a number"},
  };
  for (const auto& one : cases) {
    EXPECT_NE(error(one.path, one.value).find(one.words), std::string::npos) << error(one.path, one.value);
  }
}

// Each has a test that changes it and sees its stage do something else; a new one needs its own, and a line
// here.
TEST(LiveParameterKinds, AreAllTested) {
  const std::set<std::string> tested = {
      "admit.waiting",          // tests/stages/dense_admit_test.cpp
      "fetch.bandwidth_limit",  // tests/stages/moe_fetch_test.cpp
      "fetch.deadline_ms",      // tests/stages/moe_fetch_test.cpp
      "fetch.hints",            // tests/stages/moe_fetch_test.cpp
      "predict.method",         // above
      "write.flush_seconds",    // tests/jobs/read_write_stage_test.cpp
  };
  std::set<std::string> found;
  const Registry registry = builtin_registry();
  for (const StageInfo* info : registry.infos()) {
    for (const ParamInfo& param : info->params) {
      if (param.while_running) found.insert(std::string(info->kind) + "." + std::string(param.name));
    }
  }
  EXPECT_EQ(found, tested);
}

constexpr ParamInfo kHostParams[] = {
    {.name = "flag", .type = ParamType::boolean, .default_value = "false", .while_running = true},
    {.name = "size",
     .type = ParamType::bytes,
     .default_value = "1KiB",
     .allow_auto = true,
     .while_running = true},
    {.name = "share",
     .type = ParamType::number,
     .default_value = "0.5",
     .allow_auto = true,
     .while_running = true},
    {.name = "mode",
     .type = ParamType::choice,
     .default_value = "b",
     .choices = "a|b|c",
     .while_running = true},
    {.name = "fixed", .type = ParamType::integer, .default_value = "3"},
};
constexpr StageInfo kHostKind = {.kind = "host", .help = "of a host", .params = kHostParams};

// Every type keeps its value, and auto is told from every number.
TEST(LiveParameterCells, KeepValuesOfEveryType) {
  PipelineSpec spec;
  StageSpec stage;
  stage.name = "h";
  stage.kind = "host";
  stage.params["size"] = {"2MiB", {}};
  spec.stages.push_back(stage);
  const StageInfo* kinds[] = {&kHostKind};
  LiveParameters live(spec, kinds);
  const auto value = [&live](std::string_view param) { return live.find("h", param)->get(); };
  EXPECT_EQ(live.find("h", "fixed"), nullptr);
  EXPECT_EQ(live.find("x", "flag"), nullptr);
  EXPECT_FALSE(value("flag").boolean);
  EXPECT_EQ(value("size").integer, 2U << 20);
  EXPECT_EQ(value("share").number, 0.5);
  EXPECT_EQ(value("mode").text, "b");
  for (const auto& [param, text] :
       {std::pair{"flag", "true"}, {"size", "auto"}, {"share", "auto"}, {"mode", "c"}}) {
    EXPECT_TRUE(live.set(std::string("stages.h.") + param, text).is_ok());
  }
  EXPECT_TRUE(value("flag").boolean);
  EXPECT_TRUE(value("size").is_auto);
  EXPECT_TRUE(value("share").is_auto);
  EXPECT_EQ(value("mode").text, "c");
  EXPECT_TRUE(live.set("stages.h.share", "0").is_ok());
  EXPECT_FALSE(value("share").is_auto);
  EXPECT_EQ(value("share").number, 0);
}

constexpr ParamInfo kTextParams[] = {{.name = "label", .type = ParamType::text, .while_running = true}};
constexpr StageInfo kTextKind = {.kind = "texts", .help = "has a text", .params = kTextParams};

TEST(LiveParameterCells, TextsAreNoneOfThem) {
  Registry registry;
  const Status status = registry.add({.info = &kTextKind});
  EXPECT_NE(status.to_string().find(
                "a text cannot change while a pipeline runs: parameter 'label' of stage kind 'texts'"),
            std::string::npos)
      << status.to_string();
}

}  // namespace
}  // namespace colibri::testing
