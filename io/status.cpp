#include "io/status.hpp"

namespace colibri {

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok: return "ok";
    case ErrorCode::invalid_input: return "invalid_input";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::io: return "io";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::capacity: return "capacity";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::internal: return "internal";
    case ErrorCode::forked: return "forked";
  }
  return "unknown";
}

Status::Status(ErrorCode code, std::string message)
    : state_(std::make_shared<State>(State{code, std::move(message), {}, {}, {}})) {}

Status Status::no_memory() noexcept {
  // Never destroyed, since a Status may outlive everything; its strings are empty, so nothing is lost.
  union Kept {
    State state;
    Kept() noexcept : state{ErrorCode::out_of_memory, {}, {}, {}, {}} {
      state.fixed_message = "the system has no memory left; lower the memory settings, or free some";
    }
    ~Kept() {}
  };
  static Kept kept;
  Status status;
  status.state_ = std::shared_ptr<State>(std::shared_ptr<void>(), &kept.state);
  return status;
}

Status::State& Status::own_state() {
  state_ = std::make_shared<State>(*state_);
  return *state_;
}

Status&& Status::at(std::string place) && {
  if (state_) own_state().chain.insert(0, ": ").insert(0, place);
  return std::move(*this);
}

Status&& Status::in_stage(const std::string& stage) && {
  if (!state_) return std::move(*this);
  State& state = own_state();
  state.chain.insert(0, ": ").insert(0, stage).insert(0, "stage ");
  if (state.stage.empty()) state.stage = stage;
  return std::move(*this);
}

Status&& Status::in_file(std::string file, std::uint64_t offset) && {
  if (!state_ || !state_->file.empty()) return std::move(*this);
  State& state = own_state();
  state.file = std::move(file);
  state.offset = offset;
  return std::move(*this);
}

std::string Status::to_string() const {
  if (!state_) return "ok";
  return state_->chain + std::string(message());
}

}  // namespace colibri
