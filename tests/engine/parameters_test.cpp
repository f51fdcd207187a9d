// Every parameter of every stage kind, and every setting of a pipeline file, changes what happens.
#include <gtest/gtest.h>

#include <colibri/registry.hpp>
#include <set>

#include "tests/engine/parameter_experiments.hpp"
#include "topology/pipeline_settings.hpp"

namespace colibri::testing {
namespace {

std::vector<Experiment> all_experiments() {
  std::vector<Experiment> all = read_experiments();
  for (const auto& more : {schedule_experiments(), setting_experiments()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class Parameters : public ::testing::TestWithParam<Experiment> {};

TEST_P(Parameters, ChangeWhatHappens) {
  const Experiment& experiment = GetParam();
  const std::string first = experiment.observe(experiment.first);
  const std::string second = experiment.observe(experiment.second);
  if (first.empty() || second.empty()) GTEST_SKIP() << "cannot be seen on this machine";
  EXPECT_NE(first, second) << experiment.path << " is " << experiment.first << " or " << experiment.second
                           << ": nothing changes";
  EXPECT_EQ(experiment.observe(experiment.first), first) << "what is looked at changes by itself";
}

INSTANTIATE_TEST_SUITE_P(All, Parameters, ::testing::ValuesIn(all_experiments()), [](const auto& info) {
  std::string name = info.param.path;
  for (char& c : name) c = c == '.' ? '_' : c == '*' ? 'X' : c;
  return name;
});

TEST(ParametersOfAll, HaveAnExperimentEach) {
  std::set<std::string> declared;
  const Registry registry = builtin_registry();
  for (const StageInfo* info : registry.infos()) {
    for (const auto& params : {info->params, partition_params(*info)}) {
      for (const ParamInfo& param : params) {
        declared.insert(std::string(info->kind) + "." + std::string(param.name));
      }
    }
  }
  for (const ParamInfo& param : common_stage_params()) declared.insert("*." + std::string(param.name));
  for (const SettingInfo& setting : pipeline_settings()) declared.insert(setting.path());
  declared.insert("edges.capacity");  // the one value of an edge
  std::set<std::string> shown;
  for (const Experiment& experiment : all_experiments()) {
    EXPECT_TRUE(shown.insert(experiment.path).second) << experiment.path << " is shown twice";
    EXPECT_NE(experiment.first, experiment.second) << experiment.path;
  }
  EXPECT_EQ(declared, shown) << "a new parameter needs an experiment that shows what it does";
}

}  // namespace
}  // namespace colibri::testing
