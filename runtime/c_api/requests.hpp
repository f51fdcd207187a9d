// colibri_request to the request of the pipeline, and its result to colibri_result.
#pragma once

#include <colibri/engine.hpp>

#include "io/text/request.hpp"
#include "runtime/c_api/boundary.hpp"

namespace colibri::c_api {

// Errors: invalid_input, unsupported (text, for a model without a tokenizer).
Result<Request> read_request(const Engine& engine, const colibri_request& request, std::int32_t task);

// What fits goes into the buffers, and all sizes are told.
Answer fill_result(const RequestResult& from, colibri_result& result);
// Pointers and sizes of the buffers.
Status check_result(const colibri_result* result);

// `name` is the field's, for the error.
Result<Task> read_task(std::int32_t task, std::string_view name);

}  // namespace colibri::c_api
