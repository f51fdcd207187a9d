#include <colibri/block_session.hpp>
#include <utility>

#include "runtime/engine/block_call_check.hpp"
#include "runtime/engine/block_calls.hpp"
#include "runtime/engine/contained.hpp"
#include "runtime/engine/home_process.hpp"
#include "runtime/engine/job_thread.hpp"

namespace colibri {

bool SubmittedBlock::done() const { return state_->answered || state_->process.forked(); }

BlockAnswer SubmittedBlock::wait() const {
  if (!state_->answered && state_->process.forked()) return {HomeProcess::forked_status(), 0};
  // A copy: the host may drop this one as soon as the call is answered.
  const std::shared_ptr<State> state = state_;
  return state->calls->wait(*state);
}

void SubmittedBlock::cancel() {
  if (!state_->process.forked()) state_->calls->cancel(*state_);
}

struct BlockSession::State {
  explicit State(Engine& engine) : engine(engine) {}
  const HomeProcess process;
  Engine& engine;
  std::shared_ptr<BlockCalls> calls;
  std::unique_ptr<JobThread> job;
};

BlockSession::BlockSession(std::unique_ptr<State> state) : state_(std::move(state)) {}

BlockSession::~BlockSession() {
  if (state_->process.forked()) {
    (void)state_.release();  // its thread, which uses it, is in another process
    return;
  }
  state_->calls->cancel_all();
  (void)close();
}

Result<std::unique_ptr<BlockSession>> BlockSession::start(Engine& engine) {
  if (!takes_hidden_states(engine.pipeline())) {
    return Status(ErrorCode::invalid_input,
                  "the pipeline of the engine takes requests, not hidden states; open the model with "
                  "block_pipeline_yaml(), or start a Session");
  }
  return contained([&engine]() -> Result<std::unique_ptr<BlockSession>> {
    auto state = std::make_unique<State>(engine);
    const ModelSpec& spec = engine.spec();
    state->calls = std::make_shared<BlockCalls>(spec.hidden_size, spec.num_experts_per_token);
    Job job;
    job.hidden_source = state->calls.get();
    job.hidden_sink = state->calls.get();
    COLIBRI_ASSIGN_OR_RETURN(
        state->job,
        JobThread::start(engine, std::move(job), [calls = state->calls](const Result<RunReport>& result) {
          calls->job_ended(result);
        }));
    return std::unique_ptr<BlockSession>(new BlockSession(std::move(state)));
  });
}

Status BlockSession::check(const BlockCall& call) const {
  if (state_->process.forked()) return HomeProcess::forked_status();
  return contained([&] { return check_block_call(call, state_->engine.spec()); });
}

Result<SubmittedBlock> BlockSession::submit(const BlockCall& call,
                                            std::function<void(const BlockAnswer&)> done) {
  const auto begin = SubmittedBlock::State::Clock::now();
  COLIBRI_RETURN_IF_ERROR(check(call));
  return contained([&]() -> Result<SubmittedBlock> {
    COLIBRI_ASSIGN_OR_RETURN(BlockCalls::Call added, state_->calls->add(call, std::move(done), begin));
    return SubmittedBlock(std::move(added));
  });
}

BlockAnswer BlockSession::run(const BlockCall& call) {
  auto submitted = submit(call);
  return submitted ? submitted->wait() : BlockAnswer{submitted.status(), 0};
}

RunReport BlockSession::stats() const {
  return state_->process.forked() ? RunReport() : state_->job->stats();
}

bool BlockSession::running() const { return !state_->process.forked() && state_->job->running(); }

Result<RunReport> BlockSession::close() {
  if (state_->process.forked()) return HomeProcess::forked_status();
  state_->calls->close();
  return state_->job->wait();
}

void BlockSession::cancel() {
  if (!state_->process.forked()) state_->calls->cancel_all();
}

}  // namespace colibri
