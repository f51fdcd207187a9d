// What the opaque handles of colibri.h are.
//
// Each begins with a number that tells its type, so that a handle given in place of another is
// refused and not misread. A model runs one job at a time: a service for its sessions or
// block calls, started by the first of them, or a file of requests, or the sanity check.
#pragma once

#include <atomic>
#include <chrono>
#include <colibri/block_session.hpp>
#include <colibri/session.hpp>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/c_api/boundary.hpp"

namespace colibri::c_api {

struct HandleHead {
  explicit HandleHead(std::uint64_t type) : type(type) {}
  ~HandleHead() { type = 0; }
  HandleHead(const HandleHead&) = delete;
  HandleHead& operator=(const HandleHead&) = delete;
  volatile std::uint64_t type;  // volatile: what the destructor writes must be seen by who comes too late
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
    struct Finish {
      ~Finish() { state.finish(); }
      CallState& state;
    };
    take(std::move(status), std::move(result));
    const Finish at_the_end{*this};  // also when the host's function throws, which ends the job
    const InCallback marked(InCallback::Kind::answer, this);
    tell_host();
  }
  // What can be cancelled; nothing when the answer is there already.
  void set_submitted(Submitted submitted);
  void cancel();

  Answer poll() const;
  // In a callback only for an answer that shows there: invalid_input else.
  Answer wait() const;
  // False when there is no answer by then.
  bool wait_until(std::chrono::steady_clock::time_point time) const;
  // Of a request that poll tells to be answered.
  const RequestResult& result() const noexcept { return result_; }

 private:
  void take(Status status, RequestResult result);
  void finish();
  bool shows() const { return done_ || (taken_ && InCallback::call() == this); }  // with the mutex

  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  bool taken_ = false;
  bool done_ = false;
  bool cancelled_ = false;  // before there was something to cancel
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

  std::mutex mutex;  // of what follows; not held while a service starts or ends, which calls the host's log
  std::condition_variable changed;
  std::uint32_t sessions = 0;                     // handles that exist
  std::uint32_t uses = 0;                         // of a service: calls, and functions that run
  bool alone = false;                             // a job runs that shares the engine with no service
  bool starting = false;                          // a service
  std::shared_ptr<colibri::Session> text;         // the service of COLIBRI_PURPOSE_TEXT; null: not started
  std::shared_ptr<colibri::BlockSession> blocks;  // that of COLIBRI_PURPOSE_BLOCKS
  // Services whose job has ended by itself. They end when nobody uses them, and never on a thread of theirs.
  std::vector<std::shared_ptr<void>> ended;
};

struct colibri_session {
  static constexpr std::uint64_t kType = colibri::c_api::kSessionType;
  colibri::c_api::HandleHead head{kType};
  colibri_model* model = nullptr;
  std::atomic<std::uint32_t> calls{0};  // handles that exist
};

namespace colibri::c_api {

// A model's service in use, as long as this lives.
template <class Service>
class Use {
 public:
  Use(colibri_model& model, std::shared_ptr<Service> service) noexcept
      : model_(&model), service_(std::move(service)) {}
  Use(Use&& other) noexcept
      : model_(std::exchange(other.model_, nullptr)), service_(std::move(other.service_)) {}
  Use& operator=(Use&&) = delete;
  ~Use() {
    if (model_ == nullptr) return;
    const std::lock_guard lock(model_->mutex);
    service_.reset();  // the model has it, too
    --model_->uses;
  }
  Service& operator*() const noexcept { return *service_; }
  Service* operator->() const noexcept { return service_.get(); }

 private:
  colibri_model* model_;
  std::shared_ptr<Service> service_;
};

}  // namespace colibri::c_api

struct colibri_call {
  static constexpr std::uint64_t kType = colibri::c_api::kCallType;
  explicit colibri_call(colibri::c_api::Use<colibri::BlockSession> use) : service(std::move(use)) {}
  colibri_call(colibri::c_api::Use<colibri::Session> use, colibri_session& of)
      : session(&of), service(std::move(use)) {
    ++of.calls;
  }
  ~colibri_call() {
    if (session != nullptr) --session->calls;
  }
  colibri::c_api::HandleHead head{kType};
  colibri_session* const session = nullptr;  // of a request; null: of a block
  std::shared_ptr<colibri::c_api::CallState> state = std::make_shared<colibri::c_api::CallState>();
  std::variant<colibri::c_api::Use<colibri::Session>, colibri::c_api::Use<colibri::BlockSession>> service;
};

namespace colibri::c_api {

// unsupported when the model was opened for something else.
Answer check_purpose(const colibri_model& model, std::int32_t purpose);

// The service of the model's purpose, started when it does not run. Answers: those of check_purpose, busy (a
// job runs alone), the errors of a job's start.
Answer text_service(colibri_model& model, std::optional<Use<Session>>& use);
Answer block_service(colibri_model& model, std::optional<Use<BlockSession>>& use);

// A call that was told to the host and is not submitted yet: it goes again unless that succeeds.
class Unsubmitted {
 public:
  explicit Unsubmitted(colibri_call*& call) : call_(call) {}
  ~Unsubmitted() {
    if (!submitted_) delete std::exchange(call_, nullptr);
  }
  void submitted() noexcept { submitted_ = true; }

 private:
  colibri_call*& call_;
  bool submitted_ = false;
};

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
