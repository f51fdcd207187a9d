#include "io/text/request_fields.hpp"

#include <cmath>
#include <limits>

#include "io/text/tokenizer.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

Status read_count(const JsonValue& value, std::string_view field, std::uint64_t minimum,
                  std::uint64_t maximum, std::uint32_t& count) {
  std::uint64_t number = 0;
  if (!value.to_unsigned(number) || number < minimum || number > maximum) {
    return field_error(field, "an integer from " + std::to_string(minimum) + " to " + std::to_string(maximum),
                       value);
  }
  count = static_cast<std::uint32_t>(number);
  return {};
}

Status read_flag(const JsonValue& value, std::string_view field, bool& flag) {
  if (value.boolean() == nullptr) return field_error(field, "true or false", value);
  flag = *value.boolean();
  return {};
}

Status read_max_tokens(const JsonValue& value, std::string_view field, FieldContext& context) {
  context.request.max_tokens_given = true;
  return read_count(value, field, 1, kMaxCount, context.request.max_tokens);
}

Status read_temperature(const JsonValue& value, std::string_view field, FieldContext& context) {
  double number = 0;
  if (!value.to_double(number) || number < 0 || number > kMaxTemperature) {
    return field_error(field, "a number from 0 to 100", value);
  }
  const auto temperature = static_cast<float>(number);
  context.request.temperature = temperature < kGreedyTemperature ? 0.0F : temperature;
  return {};
}

Status read_top_p(const JsonValue& value, std::string_view field, FieldContext& context) {
  double number = 0;
  // The float of a tiny double may be zero, which would keep no token at all.
  if (!value.to_double(number) || static_cast<float>(number) <= 0 || number > 1) {
    return field_error(field, "a number above 0 and at most 1", value);
  }
  context.request.top_p = static_cast<float>(number);
  return {};
}

Status read_top_k(const JsonValue& value, std::string_view field, FieldContext& context) {
  return read_count(value, field, 0, kMaxCount, context.request.top_k);
}

Status read_seed(const JsonValue& value, std::string_view field, FieldContext& context) {
  std::int64_t negative = 0;
  if (!value.to_unsigned(context.request.seed)) {
    if (!value.to_signed(negative)) {
      return field_error(field, "an integer from -9223372036854775808 to 18446744073709551615", value);
    }
    context.request.seed = static_cast<std::uint64_t>(negative);
  }
  context.has_seed = true;
  return {};
}

Status read_stop(const JsonValue& value, std::string_view field, FieldContext& context) {
  static constexpr std::string_view kExpected = "a string or a list of at most 16 strings";
  const auto add = [&](const JsonValue& item) -> Status {
    const std::string* text = item.text();
    if (text == nullptr) return field_error(field, kExpected, item);
    if (text->empty() || text->size() > kMaxStopBytes) {
      return field_error(field, "stop strings of 1 to 1024 bytes", item);
    }
    context.request.stop.push_back(*text);
    return {};
  };
  if (const auto* list = value.array()) {
    if (list->size() > kMaxStopStrings) {
      return {ErrorCode::invalid_input, "field '" + std::string(field) +
                                            "': expected at most 16 stop strings, found " +
                                            std::to_string(list->size())};
    }
    for (const JsonValue& item : *list) COLIBRI_RETURN_IF_ERROR(add(item));
  } else {
    COLIBRI_RETURN_IF_ERROR(add(value));
  }
  if (!context.request.stop.empty() && context.tokenizer == nullptr) {
    return {ErrorCode::unsupported, "field '" + std::string(field) +
                                        "' needs a tokenizer, and this model has none; remove the field"};
  }
  return {};
}

Status read_ignore_eos(const JsonValue& value, std::string_view field, FieldContext& context) {
  return read_flag(value, field, context.request.ignore_eos);
}

Status read_logprobs(const JsonValue& value, std::string_view field, FieldContext& context) {
  context.request.logprobs_given = true;
  return read_count(value, field, 0, kMaxLogprobs, context.request.logprobs);
}

Status read_pooling(const JsonValue& value, std::string_view field, FieldContext& context) {
  const std::string* text = value.text();
  if (text == nullptr || (*text != "mean" && *text != "last")) {
    return field_error(field, "\"mean\" or \"last\"", value);
  }
  context.request.pooling = *text == "mean" ? Pooling::mean : Pooling::last;
  return {};
}

Status read_normalize(const JsonValue& value, std::string_view field, FieldContext& context) {
  return read_flag(value, field, context.request.normalize);
}

Status encode_prompt(const std::string& text, std::string_view field, FieldContext& context) {
  ++context.prompts;
  const std::string name(field);
  if (context.tokenizer == nullptr) {
    return {ErrorCode::unsupported,
            "field '" + name + "' needs a tokenizer, and this model has none; give token ids"};
  }
  auto tokens = context.tokenizer->encode(text, true);
  if (!tokens) return std::move(tokens).status().at("field '" + name + "'");
  if (tokens->empty()) {
    return {ErrorCode::invalid_input, "field '" + name + "' has no tokens; give at least one character"};
  }
  for (const std::int32_t id : *tokens) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= context.defaults.vocab_size) {
      return {ErrorCode::corrupt, "the tokenizer gives an id that the model does not have: id " +
                                      std::to_string(id) + ", vocabulary " +
                                      std::to_string(context.defaults.vocab_size) +
                                      "; convert the model with its own tokenizer"};
    }
  }
  context.request.tokens = std::move(tokens).value();
  return {};
}

Status read_token_ids(const JsonValue& value, std::string_view field, FieldContext& context) {
  ++context.prompts;
  const auto* list = value.array();
  if (list == nullptr || list->empty()) return field_error(field, "a list of at least one token id", value);
  context.request.tokens.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    std::uint64_t id = 0;
    if (!(*list)[i].to_unsigned(id) || id >= context.defaults.vocab_size) {
      context.request.tokens.clear();
      return field_error(std::string(field) + "[" + std::to_string(i) + "]",
                         "a token id from 0 to " + std::to_string(context.defaults.vocab_size - 1),
                         (*list)[i]);
    }
    context.request.tokens.push_back(static_cast<std::int32_t>(id));
  }
  return {};
}

Status read_prompt(const JsonValue& value, std::string_view field, FieldContext& context) {
  if (value.text() != nullptr) return encode_prompt(*value.text(), field, context);
  return field_error(field, value.array() != nullptr ? "a string (token ids go into 'tokens')" : "a string",
                     value);
}

Status read_openai_prompt(const JsonValue& value, std::string_view field, FieldContext& context) {
  const JsonValue* prompt = &value;
  if (const auto* list = value.array(); list != nullptr && !list->empty() && !list->front().is_integer()) {
    if (list->size() > 1 && (list->front().text() != nullptr || list->front().array() != nullptr)) {
      return {ErrorCode::unsupported, "several prompts in one request are not supported: field '" +
                                          std::string(field) + "' has " + std::to_string(list->size()) +
                                          "; write one line for each"};
    }
    prompt = &list->front();
  }
  if (prompt->text() != nullptr) return encode_prompt(*prompt->text(), field, context);
  if (prompt->array() != nullptr) return read_token_ids(*prompt, field, context);
  return field_error(field, "a string or a list of token ids", *prompt);
}

Status read_model_name(const JsonValue& value, std::string_view field, FieldContext& context) {
  if (value.text() == nullptr) return field_error(field, "a string", value);
  context.request.model_name = *value.text();
  return {};
}

Status read_user(const JsonValue& value, std::string_view field, FieldContext&) {
  return value.text() != nullptr ? Status() : field_error(field, "a string", value);
}

Status not_supported(std::string_view field, std::string_view accepted, const JsonValue& found) {
  return {ErrorCode::unsupported, "field '" + std::string(field) + "' is not supported except as " +
                                      std::string(accepted) + ": found " + found.describe() +
                                      "; remove the field"};
}

Status accept_one(const JsonValue& value, std::string_view field, FieldContext&) {
  std::uint64_t number = 0;
  return value.to_unsigned(number) && number == 1 ? Status() : not_supported(field, "1", value);
}

Status accept_zero(const JsonValue& value, std::string_view field, FieldContext&) {
  double number = 1;
  return value.to_double(number) && number == 0 ? Status() : not_supported(field, "0", value);
}

Status accept_false(const JsonValue& value, std::string_view field, FieldContext&) {
  return value.boolean() != nullptr && !*value.boolean() ? Status() : not_supported(field, "false", value);
}

Status accept_null(const JsonValue& value, std::string_view field, FieldContext&) {
  return not_supported(field, "null", value);  // null itself never arrives here
}

Status accept_empty_object(const JsonValue& value, std::string_view field, FieldContext&) {
  return value.object() != nullptr && value.object()->empty() ? Status() : not_supported(field, "{}", value);
}

Status read_method(const JsonValue& value, std::string_view field, FieldContext&) {
  return value.text() != nullptr && *value.text() == "POST" ? Status()
                                                            : field_error(field, "\"POST\"", value);
}

Status read_url(const JsonValue& value, std::string_view field, FieldContext&) {
  if (value.text() != nullptr && *value.text() == "/v1/completions") return {};
  if (value.text() != nullptr && value.text()->starts_with("/v1/")) {
    return {ErrorCode::unsupported, "only completions are supported: field 'url' is " + value.describe() +
                                        "; use \"/v1/completions\" with a prompt"};
  }
  return field_error(field, "\"/v1/completions\"", value);
}

constexpr FieldRule kOwnFields[] = {
    {"id", false, nullptr},
    {"custom_id", false, nullptr},
    {"prompt", false, read_prompt},
    {"tokens", false, read_token_ids},
    {"max_tokens", true, read_max_tokens},
    {"temperature", true, read_temperature},
    {"top_p", true, read_top_p},
    {"top_k", true, read_top_k},
    {"seed", true, read_seed},
    {"stop", true, read_stop},
    {"ignore_eos", true, read_ignore_eos},
    {"logprobs", true, read_logprobs},
    {"pooling", true, read_pooling},
    {"normalize", true, read_normalize},
};

constexpr FieldRule kOpenaiLineFields[] = {
    {"custom_id", false, nullptr},
    {"method", false, read_method},
    {"url", false, read_url},
    {"body", false, nullptr},
};

constexpr FieldRule kOpenaiBodyFields[] = {
    {"model", false, read_model_name},
    {"prompt", false, read_openai_prompt},
    {"max_tokens", true, read_max_tokens},
    {"temperature", true, read_temperature},
    {"top_p", true, read_top_p},
    {"top_k", true, read_top_k},
    {"seed", true, read_seed},
    {"stop", true, read_stop},
    {"ignore_eos", true, read_ignore_eos},
    {"logprobs", true, read_logprobs},
    {"user", true, read_user},
    {"n", true, accept_one},
    {"best_of", true, accept_one},
    {"echo", true, accept_false},
    {"stream", true, accept_false},
    {"stream_options", true, accept_null},
    {"suffix", true, accept_null},
    {"presence_penalty", true, accept_zero},
    {"frequency_penalty", true, accept_zero},
    {"logit_bias", true, accept_empty_object},
};

}  // namespace

std::span<const FieldRule> own_fields() noexcept { return kOwnFields; }
std::span<const FieldRule> openai_line_fields() noexcept { return kOpenaiLineFields; }
std::span<const FieldRule> openai_body_fields() noexcept { return kOpenaiBodyFields; }

Status field_error(std::string_view field, std::string_view expected, const JsonValue& found) {
  std::string message = "field '";
  message.append(field).append("': expected ").append(expected).append(", found ").append(found.describe());
  return {ErrorCode::invalid_input, std::move(message)};
}

Status read_id(const JsonValue& value, std::string_view field, std::string& id) {
  std::uint64_t positive = 0;
  std::int64_t negative = 0;
  if (value.text() != nullptr && !value.text()->empty() && value.text()->size() <= kMaxIdBytes) {
    id = *value.text();
  } else if (value.to_unsigned(positive)) {
    id = std::to_string(positive);
  } else if (value.to_signed(negative)) {
    id = std::to_string(negative);
  } else {
    return field_error(field, "a string of 1 to 512 bytes or an integer", value);
  }
  return {};
}

}  // namespace colibri
