// Reading values of parameters.
//
// The grammar of each type is here and nowhere else: files, overrides, the runtime and the
// defaults of the tables all go through read_param. Numbers are read without locales.
#include "topology/param_value.hpp"

#include <charconv>
#include <cmath>

#include "topology/number_ranges.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kBooleanWords[] = {"true", "false"};

Status refuse(const ParamInfo& info, std::string_view text, std::string_view why,
              std::string_view suggestion = {}) {
  return {ErrorCode::invalid_input, quote_value(text) + " " + std::string(why) + "; expected " +
                                        expected_text(info) + std::string(suggestion)};
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool in_range(const ParamInfo& info, double value) { return value >= info.minimum && value <= info.maximum; }

Result<ParamValue> read_integer(const ParamInfo& info, std::string_view text) {
  ParamValue value;
  // A negative number is an integer, only never in range: saying so helps more than "not an integer".
  const bool negative = text.starts_with('-');
  if (!all_digits(negative ? text.substr(1) : text)) return refuse(info, text, "is not an integer");
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.integer);
  if (negative || error != std::errc() || !in_range(info, static_cast<double>(value.integer))) {
    return refuse(info, text, "is out of range");
  }
  return value;
}

Result<ParamValue> read_number(const ParamInfo& info, std::string_view text) {
  ParamValue value;
  // from_chars: the same in every locale. It reads inf and nan too, which no range contains.
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size() || std::isnan(value.number)) {
    return refuse(info, text, "is not a number");
  }
  if (error != std::errc() || !std::isfinite(value.number) || !in_range(info, value.number)) {
    return refuse(info, text, "is out of range");
  }
  return value;
}

Result<ParamValue> read_bytes(const ParamInfo& info, std::string_view text) {
  const Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes && bytes.status().code() == ErrorCode::capacity) {
    return Status(ErrorCode::capacity, std::string(refuse(info, text, "is too large").message()));
  }
  if (!bytes) return refuse(info, text, "is not a size");
  if (!in_range(info, static_cast<double>(*bytes))) return refuse(info, text, "is out of range");
  ParamValue value;
  value.integer = *bytes;
  return value;
}

// " from 1 to 64", " of at least 1", "".
template <class Format>
std::string range_text(const ParamInfo& info, Format format) {
  if (info.maximum != kInfinity) return " from " + format(info.minimum) + " to " + format(info.maximum);
  if (info.minimum > 0) return " of at least " + format(info.minimum);
  return {};
}

// Whether a model has these layers is seen when it is opened.
bool is_layer_list(std::string_view text) {
  if (text == "all") return true;
  NumberRanges ranges(text);
  NumberRange range;
  NumberRanges::Next next = ranges.next(range);
  while (next == NumberRanges::Next::range) next = ranges.next(range);
  return next == NumberRanges::Next::end;
}

void append_unit(const ParamInfo& info, std::string& out) {
  if (!info.unit.empty()) out.append(" ").append(info.unit);
}

}  // namespace

Result<ParamValue> read_param(const ParamInfo& info, std::string_view text) {
  ParamValue value;
  if (info.allow_auto && text == "auto") {
    value.is_auto = true;
    return value;
  }
  switch (info.type) {
    case ParamType::boolean:
      if (text != "true" && text != "false") {
        return refuse(info, text, "is not a truth value", suggest_name(text, kBooleanWords));
      }
      value.boolean = text == "true";
      return value;
    case ParamType::integer: return read_integer(info, text);
    case ParamType::number: return read_number(info, text);
    case ParamType::bytes: return read_bytes(info, text);
    case ParamType::choice: {
      const std::vector<std::string_view> choices = split_choices(info.choices);
      for (const std::string_view choice : choices) {
        if (choice == text) {
          value.text = text;
          return value;
        }
      }
      return refuse(info, text, "is not a choice", suggest_name(text, choices));
    }
    case ParamType::text:
      if (info.required && text.empty()) return refuse(info, text, "is empty");
      if (info.unit == kLayerListUnit && !is_layer_list(text))
        return refuse(info, text, "is not a list of layers");
      value.text = text;
      return value;
  }
  return refuse(info, text, "has a type that is unknown here");
}

std::string expected_text(const ParamInfo& info) {
  std::string out;
  switch (info.type) {
    case ParamType::boolean: out = "true or false"; break;
    case ParamType::integer:
      out = "an integer" + range_text(info, number_text);
      append_unit(info, out);
      break;
    case ParamType::number:
      out = "a number" + range_text(info, number_text);
      append_unit(info, out);
      break;
    case ParamType::bytes:
      out = "a size" +
            range_text(info, [](double v) { return exact_bytes_text(static_cast<std::uint64_t>(v)); });
      out += " such as 512MiB";
      break;
    case ParamType::choice: out = "one of " + join_names(split_choices(info.choices)); break;
    case ParamType::text:
      out = info.unit.empty() ? "text" : "a " + std::string(info.unit);
      if (info.unit == kLayerListUnit) out = "all, or a list of layers such as 0-3,8";
      break;
  }
  return info.allow_auto ? out + ", or auto" : out;
}

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> out;
  while (!choices.empty()) {
    const std::size_t bar = choices.find('|');
    out.push_back(choices.substr(0, bar));
    choices.remove_prefix(bar == std::string_view::npos ? choices.size() : bar + 1);
  }
  return out;
}

std::string exact_bytes_text(std::uint64_t bytes) {
  static constexpr std::string_view kNames[] = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t name = 0;
  while (bytes != 0 && bytes % 1024 == 0 && name + 1 < std::size(kNames)) {
    bytes /= 1024;
    ++name;
  }
  return std::to_string(bytes) + std::string(kNames[name]);
}

std::string number_text(double value) {
  char buffer[64];
  // Whole numbers in full, so that a limit reads 1000000 and not 1e+06.
  const bool whole = std::floor(value) == value && std::abs(value) < 1e15;
  const auto [end, error] =
      whole ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<std::int64_t>(value))
            : std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : std::string("?");
}

}  // namespace colibri
