#include "io/text/request_parser.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "io/text/content_hash.hpp"
#include "io/text/nearest_name.hpp"
#include "io/text/request_fields.hpp"

namespace colibri {
namespace {

const FieldRule* find_rule(std::span<const FieldRule> rules, std::string_view name) {
  for (const FieldRule& rule : rules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

Status unknown_field(std::string_view name, std::string_view prefix, std::span<const FieldRule> rules) {
  std::vector<std::string_view> names;
  for (const FieldRule& rule : rules) names.push_back(rule.name);
  std::string message = "unknown field '";
  message.append(prefix).append(name).append("'");
  if (const std::string_view near = nearest_name(name, names); !near.empty()) {
    message.append("; did you mean '").append(prefix).append(near).append("'?");
  } else {
    message += "; remove it";
  }
  return {ErrorCode::invalid_input, std::move(message)};
}

// All members of `object` by the table; `prefix` ("body.") is put before names in errors.
Status read_fields(const JsonValue::Object& object, std::span<const FieldRule> rules, std::string_view prefix,
                   FieldContext& context) {
  for (const auto& [name, value] : object) {
    const FieldRule* rule = find_rule(rules, name);
    if (rule == nullptr) return unknown_field(name, prefix, rules);
    if (rule->read == nullptr || (rule->nullable && value.is_null())) continue;
    COLIBRI_RETURN_IF_ERROR(rule->read(value, std::string(prefix) + name, context));
  }
  return {};
}

Status missing_field(std::string_view name, std::string_view what) {
  return {ErrorCode::invalid_input,
          "field '" + std::string(name) + "' is missing; give " + std::string(what)};
}

// Any of these makes a line an OpenAI line, so that its errors speak of that format.
bool is_openai_line(const JsonValue& line) {
  static constexpr std::string_view kMarks[] = {"body", "url", "method"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](std::string_view key) { return line.find(key) != nullptr; });
}

Status find_id(const JsonValue& line, bool openai, std::uint64_t index, std::string& id) {
  const JsonValue* own = openai ? nullptr : line.find("id");
  const JsonValue* custom = line.find("custom_id");
  if (own != nullptr && custom != nullptr) {
    return {ErrorCode::invalid_input, "fields 'id' and 'custom_id' are the same thing; give one of them"};
  }
  if (own != nullptr) return read_id(*own, "id", id);
  if (custom != nullptr) return read_id(*custom, "custom_id", id);
  if (openai) return missing_field("custom_id", "each line its own");
  id = std::to_string(index);
  return {};
}

Status read_openai_line(const JsonValue& line, FieldContext& context) {
  COLIBRI_RETURN_IF_ERROR(read_fields(*line.object(), openai_line_fields(), "", context));
  for (const std::string_view name : {"method", "url", "body"}) {
    if (line.find(name) == nullptr) {
      return missing_field(name, "custom_id, method, url and body, as in an OpenAI batch file");
    }
  }
  if (context.request.task != Task::generate) {
    return {ErrorCode::unsupported, "a completion cannot run with the task " +
                                        std::string(task_name(context.request.task)) +
                                        "; use --task generate"};
  }
  const JsonValue& body = *line.find("body");
  if (body.object() == nullptr) return field_error("body", "an object", body);
  COLIBRI_RETURN_IF_ERROR(read_fields(*body.object(), openai_body_fields(), "body.", context));
  if (context.prompts == 0) return missing_field("body.prompt", "a string or a list of token ids");
  return {};
}

Status read_own_line(const JsonValue& line, FieldContext& context) {
  COLIBRI_RETURN_IF_ERROR(read_fields(*line.object(), own_fields(), "", context));
  if (context.prompts == 1) return {};
  return {ErrorCode::invalid_input, context.prompts == 0
                                        ? "neither 'prompt' nor 'tokens' is given; give one of them"
                                        : "both 'prompt' and 'tokens' are given; give one of them"};
}

Status parse_into(std::string_view line, std::uint64_t index, FieldContext& context) {
  Request& request = context.request;
  auto parsed = parse_json(line);
  if (!parsed) return std::move(parsed).status();
  if (parsed->object() == nullptr) {
    return {ErrorCode::invalid_input, "a request line is a JSON object: found " + parsed->describe()};
  }
  request.openai = is_openai_line(*parsed);
  request.max_tokens = request.openai ? context.defaults.openai_max_tokens : context.defaults.max_tokens;
  request.temperature = request.openai ? context.defaults.openai_temperature : context.defaults.temperature;
  COLIBRI_RETURN_IF_ERROR(find_id(*parsed, request.openai, index, request.id));
  COLIBRI_RETURN_IF_ERROR(request.openai ? read_openai_line(*parsed, context)
                                         : read_own_line(*parsed, context));
  request.logprobs = std::min(request.logprobs, context.defaults.vocab_size);
  // Of generated tokens: other tasks have none to report on.
  if (request.task != Task::generate) request.logprobs_given = false;
  if (!context.has_seed) request.seed = default_seed(context.defaults.job_seed, request.id);
  return {};
}

}  // namespace

Request parse_request_line(std::string_view line, std::uint64_t index, Task task,
                           const RequestDefaults& defaults, const Tokenizer* tokenizer) {
  Request request;
  request.index = index;
  request.task = task;
  request.pooling = defaults.pooling;
  request.normalize = defaults.normalize;
  FieldContext context{defaults, tokenizer, request};
  request.error = parse_into(line, index, context);
  return request;
}

Request too_long_request(std::uint64_t index, Task task) {
  Request request;
  request.index = index;
  request.task = task;
  request.error =
      Status(ErrorCode::invalid_input, "the line is longer than " + std::to_string(kMaxLineBytes) +
                                           " bytes; split it or shorten its prompt");
  return request;
}

std::string request_line_id(std::string_view line, std::uint64_t index) {
  static constexpr std::array<std::string_view, 5> kKeys = {"id", "custom_id", "body", "url", "method"};
  const auto parsed = parse_json_members(line, kKeys);
  std::string id;
  if (!parsed || parsed->object() == nullptr || !find_id(*parsed, is_openai_line(*parsed), index, id))
    id.clear();
  return id;
}

std::uint64_t default_seed(std::uint64_t job_seed, std::string_view id) {
  std::string keyed;
  for (unsigned byte = 0; byte < sizeof(job_seed); ++byte) {  // little-endian on every machine
    keyed += static_cast<char>((job_seed >> (8 * byte)) & 0xFFU);
  }
  keyed += id;
  return content_hash64(keyed);
}

std::string_view task_name(Task task) noexcept {
  switch (task) {
    case Task::generate: return "generate";
    case Task::score: return "score";
    case Task::embed: return "embed";
  }
  return "generate";
}

}  // namespace colibri
