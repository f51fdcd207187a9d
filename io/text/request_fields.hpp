// The fields of request lines as tables: name, and how its value is read.
//
// The parser walks a line's members and looks each one up here; unknown names and "did you
// mean" follow from the same rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/status.hpp"
#include "io/text/json_document.hpp"
#include "io/text/request.hpp"
#include "io/text/request_parser.hpp"

namespace colibri {

class Tokenizer;

// What reading a field may need, and what several fields decide together.
struct FieldContext {
  const RequestDefaults& defaults;
  const Tokenizer* tokenizer;
  Request& request;
  bool has_seed = false;
  int prompts = 0;  // of `prompt` and `tokens`
};

struct FieldRule {
  std::string_view name;
  bool nullable;  // null is the same as leaving the field out
  // `field` is the name for errors ("body.seed"). Null: read by the parser before all others.
  Status (*read)(const JsonValue& value, std::string_view field, FieldContext& context);
};

std::span<const FieldRule> own_fields() noexcept;
std::span<const FieldRule> openai_line_fields() noexcept;
std::span<const FieldRule> openai_body_fields() noexcept;

// "field 'x': expected <expected>, found <value>".
Status field_error(std::string_view field, std::string_view expected, const JsonValue& found);

// The text of an id: a string or integer, not empty and not too long.
Status read_id(const JsonValue& value, std::string_view field, std::string& id);

}  // namespace colibri
