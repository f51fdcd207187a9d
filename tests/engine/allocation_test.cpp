// Steps allocate nothing: jobs that differ only in the number of decode steps allocate the same number of times.
//
// Every operator new of the process and every malloc of this executable's objects is counted, on all threads;
// what libtbb.so takes from the C library inside itself is not (its tasks come from pools of its own).
#include <gtest/gtest.h>

#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/read/allocation_counter.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

class Allocation : public ::testing::TestWithParam<bool> {
 protected:
  // Allocations of a job whose requests each generate `tokens`.
  std::uint64_t of_job(Engine& engine, std::uint32_t tokens) const {
    Request request = generate_request(golden_cases("qwen2_moe").at(0).prompt, tokens);
    request.ignore_eos = true;
    RepeatedSource source(request, 4);
    CollectingSink sink;
    StepScheduler scheduler(1);
    Job job;
    job.source = &source;
    job.sink = &sink;
    if (GetParam()) job.stepped = &scheduler;
    const std::uint64_t before = allocations();
    const auto report = engine.run(job);
    const std::uint64_t count = allocations() - before;
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(sink.results.size(), 4U);
    for (const auto& [index, result] : sink.results) EXPECT_EQ(result.tokens.size(), tokens);
    return count;
  }
};

TEST_P(Allocation, DecodeStepsAllocateNothing) {
  for (const char* experts : {"min", "25%", "100%"}) {
    const auto engine = open_engine(golden_container("qwen2_moe", "config.json", "auto"),
                                    {{"memory.experts", experts}, {"threads", "2"}, {"steps.max_rows", "16"},
                                     {"steps.wave_rows", "2"}});
    ASSERT_NE(engine, nullptr);
    of_job(*engine, 64);  // whatever is made once
    const std::uint64_t few = of_job(*engine, 8);
    const std::uint64_t many = of_job(*engine, 72);
    // Queues that grow to their largest size once may do so in either job; 64 steps would show in hundreds.
    EXPECT_LE(many, few + 8) << experts << ": " << (static_cast<double>(many) - static_cast<double>(few)) / 64 << " allocations a step";
    std::printf("experts %s: %lu allocations with 8 tokens, %lu with 72\n", experts, few, many);
  }
}

INSTANTIATE_TEST_SUITE_P(Executors, Allocation, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "stepped" : "threads"; });

}  // namespace
}  // namespace colibri::testing
