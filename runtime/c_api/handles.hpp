// What the opaque handles of colibri.h are.
//
// Each begins with a number that tells its type, so that a handle given in place of another is
// refused and not misread. A model runs one job at a time: a service for its sessions or
// block calls, started by the first of them, or a file of requests, or the sanity check.
#pragma once

#include <chrono>
#include <colibri/block_session.hpp>
#include <colibri/session.hpp>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "runtime/c_api/boundary.hpp"

namespace colibri::c_api {

struct HandleHead {
  explicit HandleHead(std::uint64_t type) : type(type) {}
  ~HandleHead() { type = 0; }
  HandleHead(const HandleHead&) = delete;
  HandleHead& operator=(const HandleHead&) = delete;
  std::uint64_t type;
};
inline constexpr std::uint64_t kModelType = 0x636f6c696d6f6431;
inline constexpr std::uint64_t kSessionType = 0x636f6c6973657331;
inline constexpr std::uint64_t kCallType = 0x636f6c6963616c31;
inline constexpr std::uint64_t kAllowanceType = 0x636f6c69616c6c31;

// Handle's kType is its number.
template <class Handle>
Status check_handle(const Handle* handle, std::string_view name) {
  COLIBRI_RETURN_IF_ERROR(check_pointer(handle, alignof(Handle), name));
  if (reinterpret_cast<const HandleHead*>(handle)->type == Handle::kType) return {};
  return {ErrorCode::invalid_input, "a handle of another type, or a destroyed one: " + std::string(name) +
                                        "; give one that was created and is not destroyed"};
}

// What a call waits for. The callback of the pipeline holds it, too: a call may be released first.
//
// The answer shows to the host's callback at once, and to everybody else when that has returned: then the
// host may free what it uses.
class CallState {
 public:
  using Submitted = std::variant<std::monostate, SubmittedRequest, SubmittedBlock>;

  // Takes the answer, calls the host, and wakes those who wait.
  template <class Tell>
  void answer(Status status, RequestResult result, Tell&& tell_host) {
    take(std::move(status), std::move(result));
    tell_host();
    finish();
  }
  // What can be cancelled; nothing when the answer is there already.
  void set_submitted(Submitted submitted);
  void cancel();

  Answer poll() const;
  // Returns at once in the host's callback.
  void wait() const;
  // False when there is no answer by then.
  bool wait_until(std::chrono::steady_clock::time_point time) const;
  // Of a request that poll tells to be answered.
  const RequestResult& result() const noexcept { return result_; }

 private:
  void take(Status status, RequestResult result);
  void finish();
  bool shows() const { return done_ || teller_ == std::this_thread::get_id(); }  // with the mutex

  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool taken_ = false;
  bool done_ = false;
  std::thread::id teller_;  // thread of the host's callback, while it runs
  Submitted submitted_;     // forgotten with the answer: it holds the callback, which holds this
  Status status_;
  RequestResult result_;
};

}  // namespace colibri::c_api

struct colibri_model {
  static constexpr std::uint64_t kType = colibri::c_api::kModelType;
  colibri::c_api::HandleHead head{kType};
  std::int32_t purpose = COLIBRI_PURPOSE_TEXT;
  std::unique_ptr<colibri::Engine> engine;

  std::mutex mutex;                               // of what follows
  std::uint32_t sessions = 0, calls = 0;          // handles that exist
  bool alone = false;                             // a job runs that shares the engine with no service
  std::shared_ptr<colibri::Session> text;         // the service of COLIBRI_PURPOSE_TEXT; null: not started
  std::shared_ptr<colibri::BlockSession> blocks;  // that of COLIBRI_PURPOSE_BLOCKS
};

struct colibri_session {
  static constexpr std::uint64_t kType = colibri::c_api::kSessionType;
  colibri::c_api::HandleHead head{kType};
  colibri_model* model = nullptr;
  std::uint32_t calls = 0;  // handles that exist; of the model's mutex
};

namespace colibri::c_api {

// Counts a call for its model and session as long as it lives.
class CallCount {
 public:
  explicit CallCount(colibri_model& model, colibri_session* session = nullptr);
  ~CallCount();
  CallCount(const CallCount&) = delete;
  CallCount& operator=(const CallCount&) = delete;

 private:
  colibri_model& model_;
  colibri_session* session_;
};

}  // namespace colibri::c_api

struct colibri_call {
  static constexpr std::uint64_t kType = colibri::c_api::kCallType;
  colibri::c_api::HandleHead head{kType};
  explicit colibri_call(colibri_model& model, colibri_session* session = nullptr)
      : of_request(session != nullptr), count(model, session) {}
  const bool of_request;  // else of a block
  colibri::c_api::CallCount count;
  std::shared_ptr<colibri::c_api::CallState> state = std::make_shared<colibri::c_api::CallState>();
};

namespace colibri::c_api {

// unsupported when the model was opened for something else.
Answer check_purpose(const colibri_model& model, std::int32_t purpose);

// The service of the model's purpose, started when it does not run. Answers: those of check_purpose, busy (a
// job runs alone), the errors of a job's start.
Answer text_service(colibri_model& model, std::shared_ptr<Session>& service);
Answer block_service(colibri_model& model, std::shared_ptr<BlockSession>& service);
// Forgets the service when its job has ended by itself: the next call starts another.
void drop_ended(colibri_model& model, const Session& service);
void drop_ended(colibri_model& model, const BlockSession& service);

// Holds the engine for a job of its own; the service ends first.
class Alone {
 public:
  // busy while sessions or calls exist, or another job runs alone.
  static Answer begin(colibri_model& model, std::string_view what, std::unique_ptr<Alone>& alone);
  ~Alone();

 private:
  explicit Alone(colibri_model& model) : model_(model) {}
  colibri_model& model_;
};

}  // namespace colibri::c_api
