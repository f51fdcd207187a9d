#include "stages/jsonl_source.hpp"

#include <utility>

namespace colibri {

JsonlSource::JsonlSource(JsonlReader reader, JsonlSourceOptions options)
    : reader_(std::move(reader)), options_(options), waiter_(reader_.descriptor()) {}

RequestSource::Pull JsonlSource::pull(Request& request) {
  JsonlLine line;
  for (;;) {
    const auto event = reader_.next(line);
    bytes_.store(reader_.bytes_consumed(), std::memory_order_relaxed);
    lines_.store(reader_.lines_consumed(), std::memory_order_relaxed);
    if (!event) {
      const std::lock_guard lock(mutex_);
      failure_ = event.status();
      return Pull::end;
    }
    if (*event == JsonlReader::Event::end) return Pull::end;
    if (*event == JsonlReader::Event::wait) return Pull::wait;
    if (left_out(line)) continue;
    parse(line, request);
    requests_.fetch_add(1, std::memory_order_relaxed);
    return Pull::request;
  }
}

// A line that is left out still takes its id.
bool JsonlSource::left_out(const JsonlLine& line) {
  if (options_.completed == nullptr || !options_.completed->contains(line.index)) return false;
  if (options_.check_ids && !line.too_long) {
    if (const std::string id = request_line_id(line.text, line.index); !id.empty()) ids_.insert(id);
  }
  return true;
}

void JsonlSource::parse(const JsonlLine& line, Request& request) {
  request = line.too_long ? too_long_request(line.index, options_.task)
                          : parse_request_line(line.text, line.index, options_.task, options_.defaults,
                                               options_.tokenizer);
  if (!options_.check_ids || request.id.empty() || ids_.insert(request.id)) return;
  if (request.error.is_ok()) {
    request.error = Status(ErrorCode::invalid_input, "an earlier line has the same id: '" + request.id +
                                                         "'; give each line its own id");
  }
}

void JsonlSource::on_ready(std::function<void()> notify) {
  if (notify) {
    waiter_.when_readable(std::move(notify));
  } else {
    waiter_.withdraw();
  }
}

Status JsonlSource::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace colibri
