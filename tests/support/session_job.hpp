// What tests of sessions share: a gate for stages, and a session's answers in the form of a job's.
#pragma once

#include <gtest/gtest.h>

#include <colibri/session.hpp>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/golden_model.hpp"

namespace colibri::testing {

// Holds those who pass while it is closed, for tests that need a pipeline to stand still where they say.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --held_;
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;
  bool open_ = false;
};

// Opens it at the end of a scope, also when an assertion has ended the test.
class OpenAtEnd {
 public:
  explicit OpenAtEnd(Gate& gate) : gate_(gate) {}
  ~OpenAtEnd() { gate_.open(); }
  OpenAtEnd(const OpenAtEnd&) = delete;
  OpenAtEnd& operator=(const OpenAtEnd&) = delete;

 private:
  Gate& gate_;
};

inline std::unique_ptr<Session> start_session(Engine& engine, SessionOptions options = {}) {
  auto session = Session::start(engine, options);
  EXPECT_TRUE(session.is_ok()) << session.status().to_string();
  return session ? std::move(session).value() : nullptr;
}

inline SubmittedRequest submit(Session& session, Request request, RequestCallbacks callbacks = {}) {
  auto submitted = session.submit(std::move(request), std::move(callbacks));
  if (!submitted) throw std::runtime_error(submitted.status().to_string());
  return std::move(submitted).value();
}

inline std::vector<SubmittedRequest> submit_all(Session& session, const std::vector<Request>& requests) {
  std::vector<SubmittedRequest> submitted;
  for (const Request& request : requests) submitted.push_back(submit(session, request));
  return submitted;
}

// The answers as run_job gives them.
inline JobRun answers(const std::vector<SubmittedRequest>& submitted) {
  JobRun run;
  for (const SubmittedRequest& request : submitted) run.results.push_back(request.wait());
  return run;
}

}  // namespace colibri::testing
