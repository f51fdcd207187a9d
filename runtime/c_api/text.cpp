// colibri_session_*, colibri_generate and its like: requests, one at a time or many.
#include <utility>

#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/requests.hpp"

using namespace colibri;
using namespace colibri::c_api;

namespace {

// What the host wants to be told; of one request.
struct Listener {
  colibri_piece piece = nullptr;
  colibri_request_done done = nullptr;
  void* user = nullptr;
};

RequestCallbacks callbacks_of(const Listener& listener, const std::shared_ptr<CallState>& state) {
  RequestCallbacks callbacks;
  if (listener.piece != nullptr) {
    callbacks.piece = [listener, state](std::string_view text) {
      const InCallback marked(InCallback::Kind::answer, state.get());
      listener.piece(listener.user, text.data(), text.size());
    };
  }
  callbacks.done = [listener, state](const RequestResult& result) {
    const colibri_code code = Answer(result.error).code();
    state->answer(result.error, result, [&] {
      if (listener.done != nullptr) listener.done(listener.user, code);
    });
  };
  return callbacks;
}

// `call` is told before anything can be answered, so that the host's callback may release it.
Answer submit(colibri_session& session, const colibri_request* from, std::int32_t task,
              const Listener& listener, colibri_call*& call) {
  COLIBRI_C_RETURN_IF_ERROR(check_struct(from, "request"));
  colibri_model& model = *session.model;
  auto request = read_request(*model.engine, *from, task);
  if (!request) return std::move(request).status();
  request->stream = listener.piece != nullptr;
  std::optional<Use<Session>> use;
  COLIBRI_C_RETURN_IF_ERROR(text_service(model, use));
  Session& service = **use;
  Unsubmitted guard(call);
  call = new colibri_call(std::move(*use), session);
  const std::shared_ptr<CallState> state = call->state;
  auto submitted = service.submit(std::move(request).value(), callbacks_of(listener, state));
  if (!submitted && submitted.status().code() == ErrorCode::capacity) {
    return Answer::busy(
        "too many requests of the model are open; release calls that are answered, and wait for others");
  }
  if (!submitted) return std::move(submitted).status();
  guard.submitted();
  state->set_submitted(std::move(submitted).value());
  return {};
}

// What poll says of a call, and then what there is of its answer.
Answer result_of(const CallState& state, colibri_result& result) {
  Answer answer = state.poll();
  if (answer.code() == COLIBRI_PENDING) return answer;
  Answer filled = fill_result(state.result(), result);
  return answer.is_ok() ? filled : answer;
}

colibri_code run(colibri_session* session, const colibri_request* request, std::int32_t task,
                 colibri_result* result, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(session, "session"));
    COLIBRI_C_RETURN_IF_ERROR(check_result(result));
    COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
    colibri_call* submitted = nullptr;
    COLIBRI_C_RETURN_IF_ERROR(submit(*session, request, task, {}, submitted));
    const std::unique_ptr<colibri_call> call(submitted);
    COLIBRI_C_RETURN_IF_ERROR(call->state->wait());
    return result_of(*call->state, *result);
  });
}

}  // namespace

colibri_code colibri_request_init(colibri_request* request, uint64_t struct_size) {
  return contain(nullptr, [&]() -> Status {
    COLIBRI_RETURN_IF_ERROR(init_struct(request, struct_size, "request"));
    request->top_p = 1;
    return {};
  });
}

colibri_code colibri_result_init(colibri_result* result, uint64_t struct_size) {
  return contain(nullptr, [&] { return init_struct(result, struct_size, "result"); });
}

colibri_code colibri_session_create(colibri_model* model, colibri_session** session, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(session, alignof(colibri_session*), "session"));
    *session = nullptr;
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    auto made = std::make_unique<colibri_session>();
    made->model = model;
    // What the start of the job has to say is said here.
    std::optional<Use<Session>> use;
    COLIBRI_C_RETURN_IF_ERROR(text_service(*model, use));
    const std::lock_guard lock(model->mutex);
    ++model->sessions;
    *session = made.release();
    return {};
  });
}

colibri_code colibri_session_destroy(colibri_session* session, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    if (session == nullptr) return {};
    COLIBRI_C_RETURN_IF_ERROR(check_handle(session, "session"));
    if (const std::uint32_t calls = session->calls; calls > 0) {
      return Answer::busy("calls of the session exist: " + std::to_string(calls) + "; release them first");
    }
    {
      const std::lock_guard lock(session->model->mutex);
      --session->model->sessions;
    }
    delete session;
    return {};
  });
}

colibri_code colibri_session_submit(colibri_session* session, const colibri_request* request,
                                    colibri_piece piece, colibri_request_done done, void* user,
                                    colibri_call** call, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(call, alignof(colibri_call*), "call"));
    *call = nullptr;
    COLIBRI_C_RETURN_IF_ERROR(check_handle(session, "session"));
    COLIBRI_C_RETURN_IF_ERROR(check_struct(request, "request"));
    return submit(*session, request, request->task, {piece, done, user}, *call);
  });
}

colibri_code colibri_call_result(const colibri_call* call, colibri_result* result, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(call, "call"));
    COLIBRI_C_RETURN_IF_ERROR(check_result(result));
    if (call->session == nullptr) {
      return Status(ErrorCode::invalid_input,
                    "the call is one of colibri_infer_async, whose results are in its output; give a call of "
                    "colibri_session_submit");
    }
    return result_of(*call->state, *result);
  });
}

colibri_code colibri_generate(colibri_session* session, const colibri_request* request,
                              colibri_result* result, colibri_error* error) {
  return run(session, request, COLIBRI_TASK_GENERATE, result, error);
}

colibri_code colibri_score(colibri_session* session, const colibri_request* request, colibri_result* result,
                           colibri_error* error) {
  return run(session, request, COLIBRI_TASK_SCORE, result, error);
}

colibri_code colibri_embed(colibri_session* session, const colibri_request* request, colibri_result* result,
                           colibri_error* error) {
  return run(session, request, COLIBRI_TASK_EMBED, result, error);
}
