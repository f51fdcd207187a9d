#include "stages/read.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <utility>

namespace colibri {
namespace {

class Read final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    const Services& services = context.services();
    if (services.source == nullptr) {
      return {ErrorCode::invalid_input, "a pipeline with a read stage needs a source of requests: stage '" +
                                            std::string(context.name()) + "'; set Services::source"};
    }
    max_seq_len_ = services.plan.spec != nullptr ? services.plan.spec->max_seq_len : 0;
    requests_ = context.counter("requests_total");
    bad_requests_ = context.counter("bad_requests_total");
    prompt_tokens_ = context.counter("prompt_tokens_total");
    waiting_ = false;
    ended_ = false;
    return {};
  }

  // Only the completion port delivers here: the source has something again.
  Wait on_message(Message&, Emitter& out) override { return resume(out); }

  Wait resume(Emitter& out) override {
    waiting_ = false;
    if (ended_) return Wait::input;
    const Services& services = context_->services();
    if (services.stopping && services.stopping()) return end(out);
    auto sequence = std::make_unique<Sequence>();
    switch (services.source->pull(sequence->request)) {
      case RequestSource::Pull::end: return end(out);
      case RequestSource::Pull::wait:
        waiting_ = true;
        services.source->on_ready([&port = context_->completion_port()] { port.post(Message{}); });
        return Wait::input;
      case RequestSource::Pull::request: break;
    }
    emit(std::move(sequence), out);
    return Wait::none;
  }

  // The source may outlive the completion port that it would notify.
  void stop() noexcept override {
    if (waiting_) context_->services().source->on_ready(nullptr);
    waiting_ = false;
  }

 private:
  Wait end(Emitter& out) {
    ended_ = true;
    out.end();
    return Wait::input;
  }

  void emit(std::unique_ptr<Sequence> sequence, Emitter& out) {
    Request& request = sequence->request;
    requests_->add(1);
    prompt_tokens_->add(request.tokens.size());
    if (!request.error.is_ok()) bad_requests_->add(1);
    // Space for all tokens it can ever have, so that nothing allocates while it runs. What a line
    // asks for is not trusted: a sequence never grows beyond the model's context.
    const std::size_t prompt = request.tokens.size();
    const std::size_t wanted = request.task == Task::generate ? prompt + request.max_tokens : prompt;
    sequence->tokens.reserve(std::max(prompt, std::min<std::size_t>(wanted, max_seq_len_)));
    sequence->tokens.assign(request.tokens.begin(), request.tokens.end());
    sequence->prompt_size = static_cast<std::uint32_t>(prompt);
    Message message;
    message.type = MessageType::request;
    message.object = sequence.release();
    out.emit(0, message);
  }

  StageContext* context_ = nullptr;
  std::size_t max_seq_len_ = 0;
  Counter* requests_ = nullptr;
  Counter* bad_requests_ = nullptr;
  Counter* prompt_tokens_ = nullptr;
  bool waiting_ = false;  // the source was asked to notify
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Stage> create_read() { return std::make_unique<Read>(); }

}  // namespace colibri
