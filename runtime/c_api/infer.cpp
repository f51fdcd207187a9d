// colibri_infer and its like: hidden states through the experts of one layer.
#include <utility>

#include "runtime/c_api/handles.hpp"
#include "runtime/engine/block_call_check.hpp"

using namespace colibri;
using namespace colibri::c_api;

namespace {

// What both ways of calling check before the service is asked, which checks the rest.
Answer read_call(const colibri_model& model, const colibri_infer_input* input,
                 const colibri_infer_output* output, BlockCall& call) {
  COLIBRI_C_RETURN_IF_ERROR(check_struct(input, "input"));
  const ModelSpec& spec = model.engine->spec();
  if (input->hidden_size != spec.hidden_size) {
    return Status(ErrorCode::invalid_input, "hidden states of another model: input.hidden_size is " +
                                                std::to_string(input->hidden_size) + ", the model's is " +
                                                std::to_string(spec.hidden_size));
  }
  COLIBRI_C_RETURN_IF_ERROR(check_reserved(input->reserved, "input.reserved"));
  call.layer = input->layer;
  call.rows = input->seq_len;
  call.input = input->hidden_states;
  COLIBRI_C_RETURN_IF_ERROR(check_block_shape(call, spec));
  if (output == nullptr) return {};
  call.output = output->hidden_states;
  call.experts = output->expert_ids;
  call.weights = output->expert_weights;
  const std::uint64_t values = std::uint64_t{call.rows} * spec.hidden_size;
  if (output->hidden_capacity < values)
    return too_small("output.hidden_states", values, output->hidden_capacity);
  const std::uint64_t picks = std::uint64_t{call.rows} * spec.num_experts_per_token;
  if ((call.experts != nullptr || call.weights != nullptr) && output->expert_capacity < picks)
    return too_small("output.expert_ids and expert_weights", picks, output->expert_capacity);
  return {};
}

Answer begin_output(colibri_infer_output* output) {
  COLIBRI_C_RETURN_IF_ERROR(check_struct(output, "output"));
  output->latency_ms = 0;
  output->error_code = COLIBRI_PENDING;
  return {};
}

// An output that was begun tells what is returned, too.
Answer end_output(colibri_infer_output& output, Answer answer) {
  output.error_code = answer.code();
  return answer;
}

Answer infer(colibri_model& model, const colibri_infer_input* input, colibri_infer_output& output) {
  COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_BLOCKS));
  BlockCall call;
  COLIBRI_C_RETURN_IF_ERROR(read_call(model, input, &output, call));
  std::optional<Use<BlockSession>> use;
  COLIBRI_C_RETURN_IF_ERROR(block_service(model, use));
  const BlockAnswer answer = (*use)->run(call);
  output.latency_ms = 1e3 * answer.latency_seconds;
  return answer.status;
}

// `call` is told before anything can be answered, so that the host's callback may release it.
Answer infer_async(colibri_model& model, const colibri_infer_input* input, colibri_infer_output& output,
                   colibri_infer_done done, void* user, colibri_call*& call) {
  COLIBRI_C_RETURN_IF_ERROR(check_purpose(model, COLIBRI_PURPOSE_BLOCKS));
  BlockCall block;
  COLIBRI_C_RETURN_IF_ERROR(read_call(model, input, &output, block));
  std::optional<Use<BlockSession>> use;
  COLIBRI_C_RETURN_IF_ERROR(block_service(model, use));
  BlockSession& service = **use;
  Unsubmitted guard(call);
  call = new colibri_call(std::move(*use));
  const std::shared_ptr<CallState> state = call->state;
  auto submitted = service.submit(block, [state, &output, done, user](const BlockAnswer& answer) {
    output.latency_ms = 1e3 * answer.latency_seconds;
    const Answer told(answer.status);
    output.error_code = told.code();
    state->answer(answer.status, {}, [&] {
      if (done == nullptr) return;
      colibri_error error{};
      error.struct_size = sizeof error;
      tell(told, &error);
      done(user, &output, told.is_ok() ? nullptr : &error);
    });
  });
  if (!submitted) return std::move(submitted).status();
  guard.submitted();
  state->set_submitted(std::move(submitted).value());
  return {};
}

}  // namespace

colibri_code colibri_infer_check_input(const colibri_model* model, const colibri_infer_input* input,
                                       colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(check_purpose(*model, COLIBRI_PURPOSE_BLOCKS));
    BlockCall call;
    COLIBRI_C_RETURN_IF_ERROR(read_call(*model, input, nullptr, call));
    return check_block_input(call, model->engine->spec());
  });
}

colibri_code colibri_infer(colibri_model* model, const colibri_infer_input* input,
                           colibri_infer_output* output, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(begin_output(output));
    return end_output(*output, infer(*model, input, *output));
  });
}

colibri_code colibri_infer_async(colibri_model* model, const colibri_infer_input* input,
                                 colibri_infer_output* output, colibri_infer_done done, void* user,
                                 colibri_call** call, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(call, alignof(colibri_call*), "call"));
    *call = nullptr;
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(begin_output(output));
    Answer refused = infer_async(*model, input, *output, done, user, *call);
    return refused.is_ok() ? refused : end_output(*output, std::move(refused));
  });
}
