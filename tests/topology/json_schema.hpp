// Checks a JSON value against the part of JSON Schema (draft 7) that the schema of pipelines uses, and
// refuses a schema that uses more: what this cannot read, a test must not take for checked.
#pragma once

#include <regex>
#include <set>
#include <string>

#include "io/text/json_document.hpp"

namespace colibri::testing {

class JsonSchema {
 public:
  explicit JsonSchema(const JsonValue& root) : root_(root) {}

  // The first thing that is wrong, as "path: what"; empty when the value is valid.
  std::string problem(const JsonValue& value) const { return check(root_, value, "$"); }

 private:
  static bool has_type(const JsonValue& value, const std::string& type) {
    double number = 0;
    if (type == "object") return value.object() != nullptr;
    if (type == "array") return value.array() != nullptr;
    if (type == "string") return value.text() != nullptr;
    if (type == "boolean") return value.boolean() != nullptr;
    if (type == "integer") return value.is_integer();
    if (type == "number") return value.to_double(number);
    ADD_FAILURE() << "unknown type in the schema: " << type;
    return false;
  }
  static bool equal(const JsonValue& a, const JsonValue& b) {
    if (a.text() != nullptr && b.text() != nullptr) return *a.text() == *b.text();
    double x = 0, y = 0;
    return a.to_double(x) && b.to_double(y) && x == y;
  }
  static double number(const JsonValue& value) {
    double number = 0;
    EXPECT_TRUE(value.to_double(number));
    return number;
  }
  static bool matches(const JsonValue& pattern, const std::string& text) {
    return std::regex_search(text, std::regex(*pattern.text(), std::regex::ECMAScript));
  }

  std::string check(const JsonValue& schema, const JsonValue& value, const std::string& path) const {
    for (const auto& [key, rule] : *schema.object()) {
      std::string found = check_rule(schema, key, rule, value, path);
      if (!found.empty()) return found;
    }
    return {};
  }

  std::string check_rule(const JsonValue& schema, const std::string& key, const JsonValue& rule,
                         const JsonValue& value, const std::string& path) const {
    if (key == "$schema" || key == "title" || key == "description" || key == "definitions") return {};
    if (key == "then") return {};  // with if
    if (key == "$ref") {
      constexpr std::string_view kPrefix = "#/definitions/";
      EXPECT_TRUE(rule.text()->starts_with(kPrefix));
      const JsonValue* target = root_.find("definitions")->find(rule.text()->substr(kPrefix.size()));
      return target == nullptr ? path + ": no definition " + *rule.text() : check(*target, value, path);
    }
    if (key == "type") {
      if (rule.text() != nullptr)
        return has_type(value, *rule.text()) ? "" : path + ": not of type " + *rule.text();
      for (const JsonValue& type : *rule.array()) {
        if (has_type(value, *type.text())) return {};
      }
      return path + ": of none of the types";
    }
    if (key == "const") return equal(rule, value) ? "" : path + ": not the constant";
    if (key == "enum") {
      for (const JsonValue& one : *rule.array()) {
        if (equal(one, value)) return {};
      }
      return path + ": none of the choices";
    }
    double number_found = 0;
    if (key == "minimum") {
      return value.to_double(number_found) && number_found < number(rule) ? path + ": below the minimum" : "";
    }
    if (key == "maximum") {
      return value.to_double(number_found) && number_found > number(rule) ? path + ": above the maximum" : "";
    }
    if (key == "pattern") {
      return value.text() != nullptr && !matches(rule, *value.text()) ? path + ": does not match" : "";
    }
    if (key == "required") {
      for (const JsonValue& name : *rule.array()) {
        if (value.object() != nullptr && value.find(*name.text()) == nullptr)
          return path + ": no " + *name.text();
      }
      return {};
    }
    if (key == "properties") {
      if (value.object() == nullptr) return {};
      for (const auto& [name, member] : *value.object()) {
        const JsonValue* known = rule.find(name);
        std::string found = known == nullptr ? "" : check(*known, member, path + "." + name);
        if (!found.empty()) return found;
      }
      return {};
    }
    if (key == "additionalProperties") {
      if (value.object() == nullptr) return {};
      const JsonValue* properties = schema.find("properties");
      for (const auto& [name, member] : *value.object()) {
        if (properties != nullptr && properties->find(name) != nullptr) continue;
        if (rule.boolean() != nullptr) {
          if (!*rule.boolean()) return path + ": unknown " + name;
        } else if (std::string found = check(rule, member, path + "." + name); !found.empty()) {
          return found;
        }
      }
      return {};
    }
    if (key == "propertyNames") {
      if (value.object() == nullptr) return {};
      for (const auto& [name, member] : *value.object()) {
        std::string found = check(rule, JsonValue(JsonValue::Data(name)), path + " name " + name);
        if (!found.empty()) return found;
      }
      return {};
    }
    if (key == "items") {
      if (value.array() == nullptr) return {};
      for (std::size_t i = 0; i < value.array()->size(); ++i) {
        std::string found = check(rule, value.array()->at(i), path + "[" + std::to_string(i) + "]");
        if (!found.empty()) return found;
      }
      return {};
    }
    if (key == "allOf") {
      for (const JsonValue& one : *rule.array()) {
        if (std::string found = check(one, value, path); !found.empty()) return found;
      }
      return {};
    }
    if (key == "anyOf") {
      for (const JsonValue& one : *rule.array()) {
        if (check(one, value, path).empty()) return {};
      }
      return path + ": none of the alternatives";
    }
    if (key == "if") return check(rule, value, path).empty() ? check(*schema.find("then"), value, path) : "";
    ADD_FAILURE() << "the schema uses a keyword that is not read here: " << key;
    return path + ": unknown keyword " + key;
  }

  const JsonValue& root_;
};

}  // namespace colibri::testing
