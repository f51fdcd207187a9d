// HintGate: drives and gaps between visits of known length, and what a hint is worth then.
#include "stages/hint_gate.hpp"

#include <gtest/gtest.h>

#include <random>

namespace colibri::testing {
namespace {

using Time = HintGate::Time;

// Visits of two demanded reads each, `gap` after the last of them the next one. A drive that does one
// at a time takes `read` for each, one that does both at once the same for both together.
Time run_visits(HintGate& gate, int visits, Time read, Time gap, bool one_at_a_time, Time now = Time(1000)) {
  for (int i = 0; i < visits; ++i) {
    gate.visit_begins(now);
    gate.submitted(0, true, now);
    gate.submitted(1, true, now);
    now += read;
    gate.ended(0, true, now);
    if (one_at_a_time) now += read;
    gate.ended(1, true, now);
    now += gap;
  }
  return now;
}

TEST(HintGate, OneAtATimeWhileNothingIsKnown) {
  HintGate gate(4);
  EXPECT_EQ(gate.threshold(Time(0)), 0.0F);
  gate.submitted(0, false, Time(0));
  EXPECT_EQ(gate.threshold(Time(1)), 1.0F);
  gate.ended(0, true, Time(5));
  EXPECT_EQ(gate.threshold(Time(5)), 0.0F);
}

// With a share x of the read over when the demand comes, it gains x of a read with p and loses 1 - x with 1 -
// p.
TEST(HintGate, ADriveThatDoesOneAtATimeWantsMoreThanWhatIsLeftOfTheRead) {
  for (const double over : {0.1, 0.25, 0.5, 0.9}) {
    HintGate gate(4);
    const Time read(10'000), gap(static_cast<std::int64_t>(over * 10'000));
    const Time end = run_visits(gate, 40, read, gap, true);
    EXPECT_NEAR(gate.threshold(end - gap), 1 - over, 0.03) << "at the beginning of the gap";
    gate.submitted(2, false, end - gap);
    EXPECT_NEAR(gate.threshold(end - gap), 1, 0.03) << "after another one that takes all of it";
  }
}

TEST(HintGate, ReadsThatFitOrThatDisturbNobodyAreFree) {
  HintGate roomy(4);
  const Time end = run_visits(roomy, 40, Time(10'000), Time(25'000), true);
  EXPECT_EQ(roomy.threshold(end - Time(25'000)), 0.0F);
  roomy.submitted(2, false, end - Time(25'000));
  EXPECT_EQ(roomy.threshold(end - Time(25'000)), 0.0F) << "two fit";
  roomy.submitted(3, false, end - Time(25'000));
  EXPECT_NEAR(roomy.threshold(end - Time(25'000)), 0.5, 0.1) << "half of a third one";

  HintGate wide(4);
  const Time last = run_visits(wide, 40, Time(10'000), Time(1), false);
  wide.submitted(2, false, last);
  EXPECT_LT(wide.threshold(last), 0.01F);
}

// Clocks count from when a machine was started, and jobs may wait for requests.
TEST(HintGate, NeitherTheTimeBeforeTheFirstVisitNorAPauseIsAGap) {
  HintGate gate(4);
  const Time read(10'000), gap(1'000);
  const Time day(std::int64_t{86'400} * 1'000'000'000);
  Time now = run_visits(gate, 40, read, gap, true, day);
  EXPECT_NEAR(gate.threshold(now - gap), 0.9, 0.03);
  now = run_visits(gate, 100, read, gap, true, now + day);
  EXPECT_NEAR(gate.threshold(now - gap), 0.9, 0.1) << "a hundred visits after a pause";
}

TEST(HintGate, LearnsHowFarProbabilitiesAreTrue) {
  HintGate gate(1);
  EXPECT_FLOAT_EQ(gate.probability(0.9F), 0.9F);
  std::mt19937 random(2);
  for (int i = 0; i < 4000; ++i) {
    gate.settled(0.9F, random() % 10 < 6);
    gate.settled(0.6F, random() % 10 < 1);
  }
  EXPECT_NEAR(gate.probability(0.92F), 0.6F, 0.08F);
  EXPECT_NEAR(gate.probability(0.55F), 0.1F, 0.08F);
  EXPECT_FLOAT_EQ(gate.probability(0.3F), 0.3F);
  EXPECT_FLOAT_EQ(gate.probability(0.0F), 0.0F);
}

// A sweep reads what is all but certain, and little else.
TEST(HintGate, TellsApartWhatIsNearlyCertain) {
  HintGate gate(1);
  for (int i = 0; i < 400; ++i) {
    gate.settled(0.98F, i % 5 != 0);
    gate.settled(0.9999F, true);
  }
  EXPECT_NEAR(gate.probability(0.98F), 0.8F, 0.02F);
  EXPECT_GT(gate.probability(0.9999F), 0.999F);
}

}  // namespace
}  // namespace colibri::testing
