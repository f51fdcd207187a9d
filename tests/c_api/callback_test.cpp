// What callbacks of hosts may do, and what they must not be able to break: submit, release, throw, wait; and
// functions that want a model for themselves while others use it.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/c_api/c_model.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

class Callbacks : public ::testing::Test {
 protected:
  void SetUp() override {
    container_ = golden_container("olmoe", "config.json", "auto");
    one_ = golden_cases("olmoe").at(0);
  }
  std::filesystem::path container_;
  GoldenCase one_;
};

struct Host {
  CRequest* next = nullptr;
  colibri_session* session = nullptr;
  colibri_model* model = nullptr;
  CInfer* rows = nullptr;
  colibri_call* call = nullptr;
  colibri_call* second = nullptr;
  std::atomic<colibri_code> submitted{COLIBRI_PENDING};
  std::atomic<colibri_code> code{COLIBRI_PENDING};
  std::atomic<int> told{0};
};

// The job ends by a callback that throws; the request that was open is told so, and asks again from there.
TEST_F(Callbacks, OfAFailedJobMaySubmitToTheNext) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  CRequest golden(one_.prompt);
  golden.max_tokens = static_cast<std::uint32_t>(one_.greedy.size());
  golden.ignore_eos = 1;
  CRequest endless(one_.prompt);
  endless.max_tokens = spec_of(model).max_seq_len - static_cast<std::uint32_t>(one_.prompt.size());
  endless.ignore_eos = 1;
  Host host;
  host.next = &golden;
  host.session = session;
  CError error;
  colibri_call *open = nullptr, *thrower = nullptr;
  const auto submit_again = [](void* user, colibri_code code) {
    auto& self = *static_cast<Host*>(user);
    self.code = code;
    self.submitted =
        colibri_session_submit(self.session, self.next, nullptr, nullptr, nullptr, &self.second, nullptr);
  };
  const auto throws = [](void*, colibri_code) { throw std::runtime_error("a host's mistake"); };
  ASSERT_EQ(colibri_session_submit(session, &endless, nullptr, submit_again, &host, &open, &error),
            COLIBRI_OK);
  ASSERT_EQ(colibri_session_submit(session, &golden, nullptr, throws, nullptr, &thrower, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(open, -1, &error), COLIBRI_ERROR_INTERNAL) << error.message;
  EXPECT_EQ(host.code, COLIBRI_ERROR_INTERNAL);
  EXPECT_NE(colibri_call_wait(thrower, -1, &error), COLIBRI_PENDING);
  EXPECT_EQ(colibri_call_release(thrower, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(open, &error), COLIBRI_OK);
  ASSERT_EQ(host.submitted, COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(host.second, -1, &error), COLIBRI_OK) << error.message;
  CResult result;
  EXPECT_EQ(colibri_call_result(host.second, &result, &error), COLIBRI_OK);
  EXPECT_EQ(result.generated(), one_.greedy);
  EXPECT_EQ(colibri_call_release(host.second, &error), COLIBRI_OK);
  // Nobody who comes later hears of it.
  EXPECT_EQ(colibri_generate(session, &golden, &result, &error), COLIBRI_OK) << error.message;
}

TEST_F(Callbacks, OfAFailedJobOfBlocksMaySubmitToTheNext) {
  const CModel model(container_, COLIBRI_PURPOSE_BLOCKS, {"memory.experts=50%", "steps.max_rows=1"});
  const colibri_model_spec spec = spec_of(model);
  const std::vector<float> values(std::size_t{64} * spec.hidden_size, 0.5F);
  CInfer few(spec, 0, std::vector<float>(spec.hidden_size, 0.5F)), many(spec, 0, values),
      again(spec, 0, values);
  Host host;
  host.model = model;
  host.rows = &again;
  const auto throws = [](void*, const colibri_infer_output*, const colibri_error*) {
    throw std::runtime_error("a host's mistake");
  };
  const auto submit_again = [](void* user, const colibri_infer_output* output, const colibri_error*) {
    auto& self = *static_cast<Host*>(user);
    self.code = output->error_code;
    self.submitted = colibri_infer_async(self.model, &self.rows->input, &self.rows->output, nullptr, nullptr,
                                         &self.second, nullptr);
  };
  CError error;
  colibri_call *thrower = nullptr, *open = nullptr;
  ASSERT_EQ(colibri_infer_async(model, &few.input, &few.output, throws, nullptr, &thrower, &error),
            COLIBRI_OK);
  ASSERT_EQ(colibri_infer_async(model, &many.input, &many.output, submit_again, &host, &open, &error),
            COLIBRI_OK);
  EXPECT_NE(colibri_call_wait(open, -1, &error), COLIBRI_PENDING);
  EXPECT_NE(colibri_call_wait(thrower, -1, &error), COLIBRI_PENDING);
  EXPECT_EQ(colibri_call_release(thrower, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(open, &error), COLIBRI_OK);
  ASSERT_EQ(host.submitted, COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(host.second, -1, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(colibri_call_release(host.second, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_infer(model, &few.input, &few.output, &error), COLIBRI_OK) << error.message;
}

// What would wait is refused, since the pipeline waits for the callback.
TEST_F(Callbacks, MayNotWait) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  struct Waits : Host {
    std::vector<colibri_code> codes;
    std::string message;
  } host;
  CRequest request(one_.prompt);
  request.max_tokens = 2;
  request.ignore_eos = 1;
  host.next = &request;
  host.session = session;
  host.model = model;
  const auto waits = [](void* user, colibri_code) {
    auto& self = *static_cast<Waits*>(user);
    CError error;
    CResult result;
    self.codes = {colibri_generate(self.session, self.next, &result, &error),
                  colibri_prewarm(self.model, nullptr, &error), colibri_sanity_check(self.model, &error),
                  colibri_model_destroy(self.model, &error)};
    self.message = error.message;
    self.codes.push_back(colibri_call_wait(self.second, -1, &error));
    self.codes.push_back(colibri_call_release(self.second, &error));
  };
  CRequest endless(one_.prompt);
  endless.max_tokens = spec_of(model).max_seq_len - static_cast<std::uint32_t>(one_.prompt.size());
  endless.ignore_eos = 1;
  CError error;
  ASSERT_EQ(colibri_session_submit(session, &endless, nullptr, nullptr, nullptr, &host.second, &error),
            COLIBRI_OK);
  ASSERT_EQ(colibri_session_submit(session, &request, nullptr, waits, &host, &host.call, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(host.call, -1, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(host.codes, std::vector<colibri_code>(6, COLIBRI_ERROR_INVALID_INPUT));
  EXPECT_EQ(host.message,
            "called from a callback, which the pipeline waits for; hand the work to another thread");
  EXPECT_EQ(colibri_call_release(host.call, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(host.second, &error), COLIBRI_OK);
}

TEST_F(Callbacks, OfPiecesMayCancelButNotRelease) {
  const auto demo =
      std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint";
  const CModel model(container_of(demo, "config.json", "int8"), COLIBRI_PURPOSE_TEXT);
  const CSession session(model);
  CRequest request;
  request.text = "In the beginning";
  request.max_tokens = 500;
  request.ignore_eos = 1;
  Host host;
  const auto piece = [](void* user, const char*, std::uint64_t) {
    auto& self = *static_cast<Host*>(user);
    if (self.told++ > 0) return;
    self.code = colibri_call_release(self.call, nullptr);
    self.submitted = colibri_call_cancel(self.call, nullptr);
  };
  CError error;
  ASSERT_EQ(colibri_session_submit(session, &request, piece, nullptr, &host, &host.call, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(host.call, -1, &error), COLIBRI_ERROR_CANCELLED) << error.message;
  EXPECT_EQ(host.code, COLIBRI_ERROR_INVALID_INPUT);
  EXPECT_EQ(host.submitted, COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(host.call, &error), COLIBRI_OK);
}

TEST_F(Callbacks, OfTheLogMayCallNothing) {
  Host host;
  CConfig config(COLIBRI_PURPOSE_TEXT, {"threads=64"});  // more than there are: it is told
  config.log = [](void* user, const char*) {
    auto& self = *static_cast<Host*>(user);
    ++self.told;
    colibri_model_spec spec{};
    spec.struct_size = sizeof spec;
    self.code = colibri_model_spec_load("/", &spec, nullptr);
  };
  config.log_user = &host;
  const CModel model(container_, config);
  const CSession session(model);
  EXPECT_GT(host.told, 0);
  EXPECT_EQ(host.code, COLIBRI_ERROR_INVALID_INPUT);
}

// Whoever comes second is told that the model is busy, whichever it is.
TEST_F(Callbacks, WhatWantsAModelAloneIsBusyOrMakesOthersSo) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  std::atomic<int> good{0}, busy{0};
  const auto count = [&](colibri_code code, const colibri_error& error) {
    EXPECT_TRUE(code == COLIBRI_OK || code == COLIBRI_ERROR_BUSY) << code << ": " << error.message;
    ++(code == COLIBRI_OK ? good : busy);
  };
  std::vector<std::thread> threads;
  for (int kind = 0; kind < 3; ++kind) {
    threads.emplace_back([&, kind] {
      for (int round = 0; round < 30; ++round) {
        CError error;
        colibri_session* session = nullptr;
        switch (kind) {
          case 0: count(colibri_sanity_check(model, &error), error); break;
          case 1: count(colibri_prewarm(model, nullptr, &error), error); break;
          default:
            count(colibri_session_create(model, &session, &error), error);
            EXPECT_EQ(colibri_session_destroy(session, &error), COLIBRI_OK);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good + busy, 90);
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace colibri::testing
