#include "stages/jsonl_sink.hpp"

namespace colibri {

Status JsonlSink::result(RequestResult&& result) {
  line_.clear();
  writer_.append(result, line_);
  const bool failed = !result.error.is_ok();
  COLIBRI_RETURN_IF_ERROR(output_.append(result.index, line_, failed));
  (failed ? failed_ : succeeded_).fetch_add(1, std::memory_order_relaxed);
  return {};
}

}  // namespace colibri
