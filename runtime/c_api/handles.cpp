#include "runtime/c_api/handles.hpp"

#include <utility>

namespace colibri::c_api {
namespace {

Answer running_alone() {
  return Answer::busy(
      "a batch file or a check runs on the model; wait for its end, or open it a second time");
}

// Two jobs cannot share an engine, so one that has ended by itself must be gone before the next.
template <class Service, class Start>
Answer service_of(colibri_model& model, std::shared_ptr<Service>& slot, std::shared_ptr<Service>& service,
                  Start&& start) {
  const std::lock_guard lock(model.mutex);
  if (model.alone) return running_alone();
  if (slot == nullptr) {
    auto started = start(*model.engine);
    if (!started) return std::move(started).status();
    slot = std::move(started).value();
  }
  service = slot;
  return {};
}

template <class Service>
void drop(colibri_model& model, std::shared_ptr<Service>& slot, const Service& service) {
  if (service.running()) return;
  std::shared_ptr<Service> ended;  // goes when the lock is released
  const std::lock_guard lock(model.mutex);
  if (slot.get() == &service) ended = std::move(slot);
}

}  // namespace

Answer check_purpose(const colibri_model& model, std::int32_t purpose) {
  if (model.purpose == purpose) return {};
  return Status(ErrorCode::unsupported,
                purpose == COLIBRI_PURPOSE_TEXT
                    ? "the model was opened for blocks, and takes no text or tokens; set config.purpose to "
                      "COLIBRI_PURPOSE_TEXT"
                    : "the model was opened for text, and takes no hidden states; set config.purpose to "
                      "COLIBRI_PURPOSE_BLOCKS");
}

CallCount::CallCount(colibri_model& model, colibri_session* session) : model_(model), session_(session) {
  const std::lock_guard lock(model.mutex);
  ++model.calls;
  if (session != nullptr) ++session->calls;
}

CallCount::~CallCount() {
  const std::lock_guard lock(model_.mutex);
  --model_.calls;
  if (session_ != nullptr) --session_->calls;
}

void CallState::take(Status status, RequestResult result) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  result_ = std::move(result);
  taken_ = true;
  teller_ = std::this_thread::get_id();
}

void CallState::finish() {
  Submitted forgotten;  // goes when the lock is released
  const std::lock_guard lock(mutex_);
  forgotten = std::exchange(submitted_, {});
  teller_ = {};
  done_ = true;
  finished_.notify_all();
}

void CallState::set_submitted(Submitted submitted) {
  const std::lock_guard lock(mutex_);
  if (!taken_) submitted_ = std::move(submitted);
}

void CallState::cancel() {
  Submitted submitted;
  {
    const std::lock_guard lock(mutex_);
    submitted = submitted_;
  }
  if (auto* request = std::get_if<SubmittedRequest>(&submitted)) request->cancel();
  if (auto* block = std::get_if<SubmittedBlock>(&submitted)) block->cancel();
}

Answer CallState::poll() const {
  const std::lock_guard lock(mutex_);
  return shows() ? Answer(status_) : Answer::pending();
}

void CallState::wait() const {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return shows(); });
}

bool CallState::wait_until(std::chrono::steady_clock::time_point time) const {
  std::unique_lock lock(mutex_);
  return finished_.wait_until(lock, time, [this] { return shows(); });
}

Answer text_service(colibri_model& model, std::shared_ptr<Session>& service) {
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_TEXT));
  return service_of(model, model.text, service, [](Engine& engine) { return Session::start(engine); });
}

Answer block_service(colibri_model& model, std::shared_ptr<BlockSession>& service) {
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_BLOCKS));
  return service_of(model, model.blocks, service, [](Engine& engine) { return BlockSession::start(engine); });
}

void drop_ended(colibri_model& model, const Session& service) { drop(model, model.text, service); }
void drop_ended(colibri_model& model, const BlockSession& service) { drop(model, model.blocks, service); }

Answer Alone::begin(colibri_model& model, std::string_view what, std::unique_ptr<Alone>& alone) {
  std::shared_ptr<Session> text;  // the services go when the lock is released: their end takes time
  std::shared_ptr<BlockSession> blocks;
  const std::lock_guard lock(model.mutex);
  if (model.alone) return running_alone();
  if (model.sessions > 0 || model.calls > 0) {
    return Answer::busy("sessions or calls of the model exist, and " + std::string(what) +
                        " needs it alone: " + std::to_string(model.sessions) + " sessions, " +
                        std::to_string(model.calls) + " calls; destroy and release them first");
  }
  alone.reset(new Alone(model));
  model.alone = true;
  text = std::move(model.text);
  blocks = std::move(model.blocks);
  return {};
}

Alone::~Alone() {
  const std::lock_guard lock(model_.mutex);
  model_.alone = false;
}

}  // namespace colibri::c_api
