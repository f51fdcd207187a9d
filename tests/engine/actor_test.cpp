// Actors and edges: what the stage contract promises, call by call.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <stdexcept>

#include "runtime/engine/actor.hpp"

namespace colibri::testing {
namespace {

// Runs what was scheduled, in order, on the calling thread.
class ManualExecutor final : public Executor {
 public:
  void schedule(Actor& actor, bool) override { ready_.push_back(&actor); }
  void parallel(std::size_t tiles, std::size_t, void (*body)(void*, std::size_t), void* object) override {
    for (std::size_t tile = 0; tile < tiles; ++tile) body(object, tile);
  }
  std::size_t scheduled() const { return ready_.size(); }
  void run_all() {
    while (!ready_.empty()) {
      Actor* actor = ready_.front();
      ready_.pop_front();
      if (Actor* next = actor->run()) ready_.push_back(next);
    }
  }
  std::uint64_t most_unannounced_ns() const noexcept override { return unannounced_ns; }

  std::uint64_t unannounced_ns = 0;  // read when an actor is made

 private:
  std::deque<Actor*> ready_;
};

constexpr PortInfo kTwoInputs[] = {
    {"urgent", MessageType::host, "served first", false},
    {"plain", MessageType::host, "served second"},
};
constexpr PortInfo kOneOutput[] = {{"out", MessageType::host, "what comes out"}};
constexpr StageInfo kScriptedInfo = {.kind = "scripted", .help = "does what a test says", .inputs = kTwoInputs,
                                     .outputs = kOneOutput, .params = {}, .metrics = {}, .max_emits = 1};

// Writes down its calls; a test says what each answers.
class ScriptedStage final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message& message, Emitter& out) override {
    calls.push_back((message.port == kCompletionPort ? "c" : message.port == 0 ? "u" : "p") + std::to_string(message.first));
    if (act) act(message, out);
    if (forward) out.emit(0, {.first = message.first});
    if (twice) out.emit(0, {.first = message.first});
    return message.port == 1 ? answer : Wait::none;
  }
  Wait resume(Emitter& out) override {
    calls.push_back("resume");
    if (forward_on_resume) out.emit(0, {.first = 99});
    return resume_answer;
  }
  void end_of_input(Emitter&) override { calls.push_back("end"); }

  std::vector<std::string> calls;
  Wait answer = Wait::none, resume_answer = Wait::none;
  bool forward = false, twice = false, forward_on_resume = false;
  std::function<void(Message&, Emitter&)> act;  // in on_message
};

using Calls = std::vector<std::string>;

// One scripted actor between edges that the test holds.
class ActorTest : public ::testing::Test {
 protected:
  ActorTest() {
    auto owned = std::make_unique<ScriptedStage>();
    stage = owned.get();
    actor.emplace("tested", kScriptedInfo, std::move(owned), executor, 8);
    for (Edge* edge : {&urgent, &plain}) edge->consumer = &*actor;
    out.producer = &*actor;
    auto sink = std::make_unique<ScriptedStage>();
    consumer.emplace("consumer", kScriptedInfo, std::move(sink), executor, 8);
    producer.emplace("producer", kScriptedInfo, std::make_unique<ScriptedStage>(), executor, 8);
    urgent.producer = plain.producer = &*producer;
    out.consumer = &*consumer;
    actor->connect_input(0, urgent);
    actor->connect_input(1, plain);
    actor->connect_output(0, out);
  }
  void send(Edge& edge, std::uint32_t value) {
    ASSERT_TRUE(edge.push({.first = value}));
    actor->wake(false);
  }
  bool take(Message& message) {
    bool wake = false;
    if (!out.pop(message, wake)) return false;
    if (wake) actor->wake(false);
    return true;
  }

  ManualExecutor executor;
  Edge urgent{4}, plain{4}, out{1};
  std::optional<Actor> actor, producer, consumer;
  ScriptedStage* stage = nullptr;
};

TEST(Edge, HoldsItsCapacityAndWakesItsProducerOnce) {
  Edge edge(3);
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(edge.room(), 3 - i);
      ASSERT_TRUE(edge.push({.first = i}));
    }
    EXPECT_FALSE(edge.push({}));
    EXPECT_EQ(edge.room(), 0U);
    edge.wait_for_room();
    for (std::uint32_t i = 0; i < 3; ++i) {
      Message message;
      bool wake = false;
      ASSERT_TRUE(edge.pop(message, wake));
      EXPECT_EQ(message.first, i);
      EXPECT_EQ(wake, i == 0);
    }
    EXPECT_TRUE(edge.empty());
  }
  EXPECT_EQ(edge.high_water(), 3U);
}

TEST_F(ActorTest, ServesUrgentPortsFirstAndIsScheduledOnce) {
  for (const std::uint32_t i : {1U, 2U}) send(plain, i);
  for (const std::uint32_t i : {3U, 4U}) send(urgent, i);
  actor->completion_port().post({.first = 5});
  EXPECT_EQ(executor.scheduled(), 1U);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"c5", "u3", "u4", "p1", "p2"}));
  EXPECT_EQ(actor->metrics().items.get(), 5U);
}

TEST_F(ActorTest, BlockedOnMemoryStillServesMoreUrgentPorts) {
  stage->answer = Wait::memory;
  stage->resume_answer = Wait::memory;
  for (const std::uint32_t i : {1U, 2U}) send(plain, i);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  send(urgent, 3);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u3", "resume"}));
  stage->resume_answer = Wait::none;
  stage->answer = Wait::none;
  actor->completion_port().post({.first = 4});
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u3", "resume", "c4", "resume", "p2"}));
}

TEST_F(ActorTest, WaitingForADeviceOnlyTheCompletionPortIsServed) {
  stage->answer = stage->resume_answer = Wait::device;
  send(plain, 1);
  executor.run_all();
  send(urgent, 2);
  send(plain, 3);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  actor->completion_port().post({.first = 4});
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "c4", "resume"}));
  EXPECT_GT(actor->metrics().blocked_ns[static_cast<std::size_t>(Wait::device)].get(), 0U);
  stage->answer = stage->resume_answer = Wait::none;
  actor->completion_port().post({.first = 5});
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "c4", "resume", "c5", "resume", "u2", "p3"}));
}

TEST_F(ActorTest, WaitingForAnExpertAllPortsAreServed) {
  stage->answer = stage->resume_answer = Wait::expert;
  send(plain, 1);
  executor.run_all();
  stage->answer = Wait::none;
  send(plain, 2);
  send(urgent, 3);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u3", "resume", "p2", "resume"}));
  stage->resume_answer = Wait::none;
  actor->completion_port().post({.first = 4});
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u3", "resume", "p2", "resume", "c4", "resume"}));
}

TEST_F(ActorTest, TheEndWaitsForAStageThatWaits) {
  stage->answer = Wait::device;
  send(plain, 1);
  for (Edge* edge : {&urgent, &plain}) edge->end();
  actor->wake(false);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  actor->completion_port().post({.first = 2});
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "c2", "resume", "end"}));
  EXPECT_TRUE(actor->ended());
}

// A stage on a cycle of steps ends when it says so, and hears of the end of its input once.
TEST_F(ActorTest, TheEndOfInputIsToldOnce) {
  static constexpr PortInfo kPorts[] = {
      {"done", MessageType::step_done, "steps that come back", true, false, true},
      {"plain", MessageType::host, "other input"},
  };
  static constexpr StageInfo kCycling = {.kind = "cycling", .inputs = kPorts, .outputs = kOneOutput};
  auto owned = std::make_unique<ScriptedStage>();
  ScriptedStage& cycling = *owned;
  Actor tested("cycling", kCycling, std::move(owned), executor, 8);
  Edge back(2), in(2);
  for (Edge* edge : {&back, &in}) edge->consumer = &tested;
  back.producer = in.producer = &*producer;
  tested.connect_input(0, back);
  tested.connect_input(1, in);
  in.end();
  tested.wake(false);
  executor.run_all();
  ASSERT_TRUE(back.push({.type = MessageType::step_done, .first = 1}));
  cycling.act = [](Message&, Emitter& sent) { sent.end(); };
  tested.wake(false);
  executor.run_all();
  EXPECT_EQ(cycling.calls, (Calls{"end", "u1"}));
  EXPECT_TRUE(tested.ended());
}

// A delivery to a stage that waits is two calls, and each of them may fill the output.
TEST_F(ActorTest, ResumeAfterADeliveryWaitsForRoomToo) {
  Status failure;
  actor->on_failure([&failure](Status status) { failure = std::move(status); });
  stage->answer = stage->resume_answer = Wait::memory;
  send(plain, 1);
  executor.run_all();
  stage->forward = stage->forward_on_resume = true;
  send(urgent, 2);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u2"}));
  Message message;
  ASSERT_TRUE(take(message));
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "u2", "resume"}));
  EXPECT_TRUE(failure.is_ok()) << failure.to_string();
}

TEST_F(ActorTest, WantingInputIsResumedOnceWhenTheInboxIsEmpty) {
  stage->answer = Wait::input;
  stage->resume_answer = Wait::input;  // still wants more: only a message changes that
  for (const std::uint32_t i : {1U, 2U, 3U}) send(plain, i);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "p2", "p3", "resume"}));
  actor->wake(false);
  executor.run_all();
  EXPECT_EQ(stage->calls.size(), 4U);
  send(plain, 4);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "p2", "p3", "resume", "p4", "resume"}));
}

TEST_F(ActorTest, IsCalledOnlyWithRoomOnItsOutputs) {
  stage->forward = true;
  for (const std::uint32_t i : {1U, 2U}) send(plain, i);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  EXPECT_EQ(out.level(), 1U);
  Message message;
  ASSERT_TRUE(take(message));  // the pop wakes the producer
  EXPECT_EQ(message.first, 1U);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "p2"}));
  EXPECT_GT(actor->metrics().blocked_ns[static_cast<std::size_t>(Wait::output_space)].get(), 0U);
}

TEST_F(ActorTest, OutputSpaceIsResumedBeforeTheNextMessage) {
  stage->answer = Wait::output_space;
  stage->forward = true;
  send(plain, 1);
  executor.run_all();
  send(urgent, 2);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  Message message;
  ASSERT_TRUE(take(message));
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "resume", "u2"}));
}

TEST_F(ActorTest, EndsAfterAllInputsHaveEndedAndTellsItsConsumers) {
  bool ended = false;
  actor->on_ended([&ended] { ended = true; });
  send(plain, 1);
  plain.end();
  actor->wake(false);
  executor.run_all();
  EXPECT_FALSE(ended);
  send(urgent, 2);
  urgent.end();
  actor->wake(false);
  executor.run_all();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(out.ended());
  EXPECT_EQ(stage->calls, (Calls{"p1", "u2", "end"}));
}

TEST_F(ActorTest, MessagesToAnEndedActorGoWithWhatBelongsToThem) {
  for (Edge* edge : {&urgent, &plain}) edge->end();
  actor->wake(false);
  executor.run_all();
  ASSERT_TRUE(actor->ended());
  // Leaks would be seen by the address sanitizer.
  ASSERT_TRUE(plain.push({.type = MessageType::request, .object = new Sequence}));
  ASSERT_TRUE(plain.push({.type = MessageType::outcome, .object = new Outcome}));
  ASSERT_TRUE(plain.push({.type = MessageType::expert, .error = new Status(ErrorCode::io, "test")}));
  plain.wait_for_room();
  actor->wake(false);
  EXPECT_EQ(actor->run(), nullptr);
  EXPECT_TRUE(plain.empty());
  EXPECT_EQ(executor.scheduled(), 2U);  // the wake itself, and the producer that waited for room
}

// Two actors after each other under an executor that lets what was sent lie for a while.
class HandOver : public ::testing::Test {
 protected:
  explicit HandOver(std::uint64_t unannounced_ns = std::uint64_t{1} << 60) {
    executor.unannounced_ns = unannounced_ns;
    auto owned = std::make_unique<ScriptedStage>();
    stage = owned.get();
    stage->forward = true;
    actor.emplace("sender", kScriptedInfo, std::move(owned), executor, 8);
    auto sink = std::make_unique<ScriptedStage>();
    received = &sink->calls;
    consumer.emplace("receiver", kScriptedInfo, std::move(sink), executor, 8);
    in.consumer = out.producer = &*actor;
    out.consumer = &*consumer;
    actor->connect_input(1, in);
    actor->connect_output(0, out);
    consumer->connect_input(1, out);
  }
  void send(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_TRUE(in.push({.first = i}));
    actor->wake(false);
  }
  // Calls enough for the actor to be taken for one whose calls are short.
  void SetUp() override {
    send(20);
    executor.run_all();
    stage->calls.clear();
    received->clear();
  }

  ManualExecutor executor;
  Edge in{64}, out{64};
  std::optional<Actor> actor, consumer;
  ScriptedStage* stage = nullptr;
  Calls* received = nullptr;
};

TEST_F(HandOver, ARunGoesOnWithTheReceiverOfWhatItSent) {
  send(3);
  EXPECT_EQ(actor->run(), &*consumer);
  EXPECT_EQ(executor.scheduled(), 1U) << "only the wake above: the receiver is whoever called run's";
  EXPECT_TRUE(consumer->due());
  EXPECT_EQ(consumer->run(), nullptr);
  EXPECT_EQ(*received, (Calls{"p0", "p1", "p2"}));
  executor.run_all();
  EXPECT_EQ(stage->calls.size(), 3U) << "a run that nobody is due for does nothing";
}

// A call that turns out long would hold up what those before it have sent.
TEST_F(HandOver, BeforeACallOfUnknownLengthReceiversAreWoken) {
  auto owned = std::make_unique<ScriptedStage>();
  ScriptedStage* fresh_stage = owned.get();
  fresh_stage->forward = true;
  Edge first{8}, second{8};
  Actor fresh("fresh", kScriptedInfo, std::move(owned), executor, 8);
  first.consumer = second.producer = &fresh;
  second.consumer = &*consumer;
  fresh.connect_input(1, first);
  fresh.connect_output(0, second);
  consumer->connect_input(1, second);
  std::size_t scheduled = 0;
  fresh_stage->act = [&](Message& message, Emitter&) {
    if (message.first == 1) scheduled = executor.scheduled();
  };
  ASSERT_TRUE(first.push({.first = 0}) && first.push({.first = 1}));
  fresh.wake(false);
  EXPECT_EQ(fresh.run(), nullptr);
  EXPECT_EQ(scheduled, 2U) << "its own wake, and the receiver of the first message";
  executor.run_all();
  EXPECT_EQ(*received, (Calls{"p0", "p1"}));
}

TEST_F(HandOver, AReceiverThatIsDueAlreadyIsLeftToWhoWokeIt) {
  consumer->wake(false);
  send(1);
  EXPECT_EQ(actor->run(), nullptr);
  EXPECT_EQ(executor.scheduled(), 2U);
  executor.run_all();
  EXPECT_EQ(*received, (Calls{"p0"}));
}

TEST_F(HandOver, AnotherPlacementIsWokenAtOnce) {
  out.crosses_placements = true;
  std::size_t scheduled = 0;
  stage->act = [&](Message& message, Emitter&) {
    if (message.first == 1) scheduled = executor.scheduled();
  };
  send(2);
  EXPECT_EQ(actor->run(), nullptr);
  EXPECT_EQ(scheduled, 2U) << "woken by the first message";
  executor.run_all();
  EXPECT_EQ(*received, (Calls{"p0", "p1"}));
}

// More than one run makes: the rest has its turn later, and the receiver goes on meanwhile.
TEST_F(HandOver, ALongQueueTakesSeveralRuns) {
  send(40);
  EXPECT_EQ(actor->run(), &*consumer);
  EXPECT_EQ(executor.scheduled(), 2U) << "the wake above, and the sender itself";
  EXPECT_EQ(consumer->run(), nullptr);
  EXPECT_EQ(received->size(), 32U);
  executor.run_all();
  EXPECT_EQ(received->size(), 40U);
}

class WakesAtOnce : public HandOver {
 protected:
  WakesAtOnce() : HandOver(0) {}
};

TEST_F(WakesAtOnce, WithoutTimeToWaitNothingIsHandedOver) {
  std::size_t scheduled = 0;
  stage->act = [&](Message& message, Emitter&) {
    if (message.first == 1) scheduled = executor.scheduled();
  };
  send(2);
  EXPECT_EQ(actor->run(), nullptr);
  EXPECT_EQ(scheduled, 2U);
  executor.run_all();
  EXPECT_EQ(*received, (Calls{"p0", "p1"}));
}

// What wakes an actor while it runs is answered when the run is over, not beside it.
TEST_F(HandOver, AnActorNeverRunsTwiceAtATime) {
  stage->act = [&](Message& message, Emitter&) {
    if (message.first != 0) return;
    actor->wake(true);
    EXPECT_EQ(actor->run(), nullptr) << "a second run, while the first one is at work";
  };
  send(2);
  EXPECT_EQ(actor->run(), &*consumer);
  EXPECT_EQ(stage->calls, (Calls{"p0", "p1"}));
  EXPECT_TRUE(actor->due());
  EXPECT_EQ(executor.scheduled(), 2U) << "the wake of send, and one for what came meanwhile";
}

TEST_F(ActorTest, ResumeAlsoWaitsForRoom) {
  stage->forward = stage->forward_on_resume = true;
  stage->answer = Wait::input;  // sends in the call, and again when the inbox is empty
  send(plain, 1);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1"}));
  Message message;
  ASSERT_TRUE(take(message));
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"p1", "resume"}));
}

TEST_F(ActorTest, AnEmitWithoutRoomIsReportedAsABug) {
  Status failure;
  actor->on_failure([&failure](Status status) { failure = std::move(status); });
  stage->forward = true;
  stage->twice = true;  // more than StageInfo::max_emits
  send(plain, 1);
  executor.run_all();
  EXPECT_EQ(failure.code(), ErrorCode::internal);
  EXPECT_EQ(out.level(), 1U);
}

// A stage that sends a number to the owner of the expert of that number.
class AddressingStage final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message& message, Emitter& out) override {
    owners = out.owners(0);
    room = out.room(0);
    if (address) {
      out.emit_to(0, out.owner(0, message.first), {.first = message.first});
    } else {
      out.emit(0, {.first = message.first});
    }
    return Wait::none;
  }
  std::uint32_t owners = 0, room = 0;
  bool address = true;
};

constexpr PortInfo kByExpert[] = {
    {.name = "out", .type = MessageType::host, .help = "to the owner of an expert", .by_expert = true}};
constexpr StageInfo kAddressingInfo = {.kind = "addressing", .help = "sends to owners", .inputs = kTwoInputs,
                                       .outputs = kByExpert, .params = {}, .metrics = {}, .max_emits = 1};

// One output, from which edges lead to two owners: one has experts 0 and 3, the other 1 and 2.
class AddressedOutput : public ::testing::Test {
 protected:
  AddressedOutput() {
    auto owned = std::make_unique<AddressingStage>();
    stage = owned.get();
    actor.emplace("tested", kAddressingInfo, std::move(owned), executor, 8);
    in.consumer = first.producer = second.producer = &*actor;
    for (auto* one : {&consumers[0], &consumers[1], &producer}) {
      one->emplace("other", kScriptedInfo, std::make_unique<ScriptedStage>(), executor, 8);
    }
    first.consumer = &*consumers[0];
    second.consumer = &*consumers[1];
    in.producer = &*producer;
    actor->connect_input(1, in);
    actor->connect_output(0, first);
    actor->connect_output(0, second);
    actor->share_out(0, {0, 1, 1, 0, Actor::kNoOwner});
    actor->on_failure([this](Status status) { failure = std::move(status); });
  }
  void send(std::uint32_t expert) {
    ASSERT_TRUE(in.push({.first = expert}));
    actor->wake(false);
    executor.run_all();
  }
  std::vector<std::uint32_t> taken(Edge& edge) {
    std::vector<std::uint32_t> all;
    Message message;
    bool wake = false;
    while (edge.pop(message, wake)) {
      all.push_back(message.first);
      if (wake) actor->wake(false);
    }
    executor.run_all();
    return all;
  }

  ManualExecutor executor;
  Edge in{8}, first{3}, second{2};
  std::optional<Actor> actor, producer;
  std::optional<Actor> consumers[2];
  AddressingStage* stage = nullptr;
  Status failure;
};

TEST_F(AddressedOutput, SendsToTheOwnerOnly) {
  send(2);
  EXPECT_EQ(stage->owners, 2U);
  EXPECT_EQ(stage->room, 2U) << "the least of all edges";
  send(0);
  EXPECT_EQ(stage->room, 1U);
  send(3);
  EXPECT_EQ(taken(first), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(taken(second), (std::vector<std::uint32_t>{2}));
  EXPECT_TRUE(failure.is_ok());
}

// Which owner a message goes to is known when the stage was called: all of them must have room before.
TEST_F(AddressedOutput, WaitsForTheFullestEdge) {
  for (const std::uint32_t expert : {1, 2, 0}) send(expert);
  EXPECT_EQ(second.level(), 2U);
  EXPECT_EQ(first.level(), 0U) << "expert 0 waits, though its owner has room";
  EXPECT_EQ(taken(second), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(taken(first), (std::vector<std::uint32_t>{0}));
  EXPECT_TRUE(failure.is_ok());
}

TEST_F(AddressedOutput, AllOwnersHearOfTheEnd) {
  in.end();
  actor->wake(false);
  executor.run_all();
  EXPECT_TRUE(actor->ended());
  EXPECT_TRUE(first.ended());
  EXPECT_TRUE(second.ended());
}

TEST_F(AddressedOutput, AMessageWithoutAnOwnerIsReportedAsABug) {
  for (const std::uint32_t nobodys : {4, 5}) {
    failure = Status();
    send(nobodys);
    EXPECT_EQ(failure.code(), ErrorCode::internal) << nobodys;
  }
  failure = Status();
  stage->address = false;
  send(1);
  EXPECT_EQ(failure.code(), ErrorCode::internal);
  EXPECT_EQ(first.level() + second.level(), 0U);
}

TEST_F(ActorTest, AnEmitThatTheStageDoesNotDeclareIsReportedAsABug) {
  Status failure;
  actor->on_failure([&failure](Status status) { failure = std::move(status); });
  // A leak would be seen by the address sanitizer.
  stage->act = [](Message&, Emitter& sent) { sent.emit(0, {.type = MessageType::outcome, .object = new Outcome}); };
  send(plain, 1);
  executor.run_all();
  EXPECT_EQ(failure.to_string(),
            "stage tested: sent a message of type outcome on output 0, which its StageInfo does not declare");
  failure = {};
  stage->act = [](Message&, Emitter& sent) { sent.emit(1, {}); };
  send(plain, 2);
  executor.run_all();
  EXPECT_EQ(failure.code(), ErrorCode::internal);
  EXPECT_EQ(out.level(), 0U);
}

TEST_F(ActorTest, WhatAStageThrowsIsToldAndNoCallFollows) {
  std::atomic<RunPhase> phase = RunPhase::running;
  actor->follow(phase);
  Status failure;
  bool ended = false;
  actor->on_failure([&](Status status) {
    failure = std::move(status);
    phase = RunPhase::aborted;
  });
  actor->on_ended([&ended] { ended = true; });
  stage->act = [](Message& message, Emitter&) {
    // The message still owns its object; a leak or a second delete would be seen by the address sanitizer.
    if (message.first == 2) throw std::runtime_error("thrown by a test");
  };
  send(plain, 1);
  ASSERT_TRUE(plain.push({.type = MessageType::outcome, .first = 2, .object = new Outcome}));
  ASSERT_TRUE(plain.push({.type = MessageType::request, .first = 3, .object = new Sequence}));
  executor.run_all();
  EXPECT_EQ(failure.to_string(), "stage tested: exception in on_message: thrown by a test");
  EXPECT_EQ(stage->calls, (Calls{"p1", "p2"}));
  EXPECT_TRUE(ended);
  EXPECT_TRUE(plain.empty());
  send(urgent, 4);
  executor.run_all();
  EXPECT_EQ(stage->calls.size(), 2U);
  EXPECT_TRUE(urgent.empty());
}

// What a stage has taken or sent on before it throws is not freed a second time.
TEST_F(ActorTest, AStageThatThrowsLateHasDisposedOfItsMessage) {
  actor->on_failure([](const Status&) {});
  stage->act = [](Message& message, Emitter&) {
    const auto taken = message.take_outcome();
    throw std::runtime_error("thrown by a test");
  };
  ASSERT_TRUE(plain.push({.type = MessageType::outcome, .object = new Outcome}));
  actor->wake(false);
  executor.run_all();
  static constexpr PortInfo kOutcomes[] = {{"out", MessageType::outcome, "what comes out"}};
  static constexpr StageInfo kForwarder = {.kind = "forwarder", .inputs = kTwoInputs, .outputs = kOutcomes};
  auto owned = std::make_unique<ScriptedStage>();
  owned->act = [](Message& message, Emitter& sent) {
    sent.emit(0, message);
    throw std::runtime_error("thrown by a test");
  };
  Actor forwarder("forwarder", kForwarder, std::move(owned), executor, 8);
  Edge in(2);
  in.producer = &*producer;
  in.consumer = &forwarder;
  forwarder.connect_input(1, in);
  forwarder.connect_output(0, out);
  ASSERT_TRUE(in.push({.type = MessageType::outcome, .object = new Outcome}));
  forwarder.wake(false);
  executor.run_all();
  Message message;
  ASSERT_TRUE(take(message));
  EXPECT_NE(message.take_outcome(), nullptr);
}

TEST_F(ActorTest, NothingIsDeliveredBeforeThePipelineRuns) {
  std::atomic<RunPhase> phase = RunPhase::starting;
  actor->follow(phase);
  send(plain, 1);
  actor->completion_port().post({.first = 2});
  executor.run_all();
  EXPECT_TRUE(stage->calls.empty());
  phase = RunPhase::running;
  actor->wake(false);
  executor.run_all();
  EXPECT_EQ(stage->calls, (Calls{"c2", "p1"}));
}

}  // namespace
}  // namespace colibri::testing
