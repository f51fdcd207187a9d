#include "runtime/c_api/handles.hpp"

#include <utility>

namespace colibri::c_api {
namespace {

Answer running_alone() {
  return Answer::busy(
      "a batch file or a check runs on the model; wait for its end, or open it a second time");
}

// Ends those that nobody uses; with the lock, which is released meanwhile.
void end_services(colibri_model& model, std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<void>> unused;
  for (std::shared_ptr<void>& service : model.ended) {
    if (service.use_count() == 1) unused.push_back(std::move(service));
  }
  std::erase(model.ended, nullptr);
  lock.unlock();
  unused.clear();
  lock.lock();
}

template <class Service, class Start>
Answer service_of(colibri_model& model, std::shared_ptr<Service>& slot, std::optional<Use<Service>>& use,
                  Start&& start) {
  struct Started {
    ~Started() {
      if (!lock.owns_lock()) lock.lock();
      model.starting = false;
      model.changed.notify_all();
    }
    colibri_model& model;
    std::unique_lock<std::mutex>& lock;
  };
  std::unique_lock lock(model.mutex);
  // Before another one is under way: who waits for that may be in a callback of one that ends.
  if (InCallback::kind() == InCallback::Kind::none) end_services(model, lock);
  model.changed.wait(lock, [&model] { return !model.starting; });
  if (model.alone) return running_alone();
  if (slot != nullptr && !slot->running()) {
    model.ended.push_back(slot);
    slot.reset();
  }
  if (slot == nullptr) {
    model.starting = true;
    const Started at_the_end{model, lock};
    lock.unlock();
    auto started = start(*model.engine);
    if (!started) return std::move(started).status();
    lock.lock();
    slot = std::move(started).value();
  }
  use.emplace(model, slot);
  ++model.uses;
  return {};
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

void CallState::take(Status status, RequestResult result) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  result_ = std::move(result);
  taken_ = true;
}

void CallState::finish() {
  Submitted forgotten;  // goes when the lock is released
  const std::lock_guard lock(mutex_);
  forgotten = std::exchange(submitted_, {});
  done_ = true;
  finished_.notify_all();
}

void CallState::set_submitted(Submitted submitted) {
  {
    const std::lock_guard lock(mutex_);
    if (taken_) return;
    submitted_ = std::move(submitted);
    if (!cancelled_) return;
  }
  cancel();
}

void CallState::cancel() {
  Submitted submitted;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    submitted = submitted_;
  }
  if (auto* request = std::get_if<SubmittedRequest>(&submitted)) request->cancel();
  if (auto* block = std::get_if<SubmittedBlock>(&submitted)) block->cancel();
}

Answer CallState::poll() const {
  const std::lock_guard lock(mutex_);
  return shows() ? Answer(status_) : Answer::pending();
}

Answer CallState::wait() const {
  std::unique_lock lock(mutex_);
  if (!shows()) COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
  finished_.wait(lock, [this] { return shows(); });
  return {};
}

bool CallState::wait_until(std::chrono::steady_clock::time_point time) const {
  std::unique_lock lock(mutex_);
  return finished_.wait_until(lock, time, [this] { return shows(); });
}

Answer text_service(colibri_model& model, std::optional<Use<Session>>& use) {
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_TEXT));
  return service_of(model, model.text, use, [](Engine& engine) { return Session::start(engine); });
}

Answer block_service(colibri_model& model, std::optional<Use<BlockSession>>& use) {
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_BLOCKS));
  return service_of(model, model.blocks, use, [](Engine& engine) { return BlockSession::start(engine); });
}

Answer Alone::begin(colibri_model& model, std::string_view what, std::unique_ptr<Alone>& alone) {
  COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
  std::unique_lock lock(model.mutex);
  model.changed.wait(lock, [&model] { return !model.starting; });
  if (model.alone) return running_alone();
  if (model.sessions > 0 || model.uses > 0) {
    return Answer::busy("sessions or calls of the model exist, and " + std::string(what) +
                        " needs it alone: " + std::to_string(model.sessions) + " sessions, " +
                        std::to_string(model.uses) + " calls; destroy and release them first");
  }
  alone.reset(new Alone(model));
  model.alone = true;
  if (model.text != nullptr) model.ended.push_back(std::exchange(model.text, nullptr));
  if (model.blocks != nullptr) model.ended.push_back(std::exchange(model.blocks, nullptr));
  end_services(model, lock);
  return {};
}

Alone::~Alone() {
  const std::lock_guard lock(model_.mutex);
  model_.alone = false;
}

}  // namespace colibri::c_api
