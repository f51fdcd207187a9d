// The JSON Schema of pipeline files, from the same tables that check them.
//
// Editors use it to complete and to underline. Ports and the graph are beyond a schema: those
// need check_pipeline.
#include <set>

#include "topology/describe_kind.hpp"
#include "topology/json_text.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_settings.hpp"

namespace colibri {
namespace {

// Names of stages.
constexpr std::string_view kNamePattern = "[a-z][a-z0-9_]{0,63}";
// What parse_bytes takes; a fraction only with a unit, since bytes are whole.
constexpr std::string_view kSizePattern = "[0-9]+(\\.[0-9]{1,9}(?=.*[bB]$))? ?([kKmMgGtT][iI]?)?[bB]?";

void write_range(JsonText& json, const ParamInfo& param) {
  json.member_literal("minimum", number_text(param.minimum));
  if (param.maximum != std::numeric_limits<double>::infinity()) {
    json.member_literal("maximum", number_text(param.maximum));
  }
}

// The keywords for the value itself, without auto.
void write_type(JsonText& json, const ParamInfo& param, bool share) {
  switch (param.type) {
    case ParamType::boolean: json.member("type", "boolean"); return;
    case ParamType::integer:
      json.member("type", "integer");
      write_range(json, param);
      return;
    case ParamType::number:
      json.member("type", "number");
      write_range(json, param);
      return;
    case ParamType::bytes:
      json.key("type");
      json.open_list();
      json.string("string");
      json.string("integer");
      json.close_list();
      write_range(json, param);  // of plain numbers; a size with a unit is text to the schema
      json.member("pattern",
                  "^(" + std::string(kSizePattern) + (share ? "|[0-9]+(\\.[0-9]+)?%|min" : "") + ")$");
      return;
    case ParamType::choice:
      json.key("enum");
      json.open_list();
      for (const std::string_view choice : split_choices(param.choices)) json.string(choice);
      json.close_list();
      return;
    case ParamType::text:
      // Plain text that looks like a number or a truth value is text here.
      json.key("type");
      json.open_list();
      json.string("string");
      json.string("number");
      json.string("boolean");
      json.close_list();
      return;
  }
}

// Text of a form that a schema can express; empty: any text.
std::string_view text_pattern(const ParamInfo& param) {
  if (param.unit == kCpuListUnit) return "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$";
  if (param.unit == kExpertListUnit)
    return "^ *(all|[0-9]+(-[0-9]*|/[0-9]+)?( *, *[0-9]+(-[0-9]*|/[0-9]+)?)*) *$";
  if (param.unit == kLayerListUnit) return "^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$";
  if (param.required) return ".";
  return {};
}

// Lists in YAML that stand for such a text.
bool is_list_too(const ParamInfo& param) {
  return param.unit == kCpuListUnit || param.unit == kExpertListUnit || param.unit == kLayerListUnit;
}

void write_value(JsonText& json, const ParamInfo& param, bool share) {
  const bool list_too = is_list_too(param);
  const std::string_view pattern = text_pattern(param);
  if (!param.allow_auto && !list_too) {
    write_type(json, param, share);
    if (!pattern.empty()) json.member("pattern", pattern);
    return;
  }
  json.key("anyOf");
  json.open_list();
  json.open_object();
  write_type(json, param, share);
  if (!pattern.empty()) json.member("pattern", pattern);
  json.close_object();
  if (param.allow_auto) {
    json.open_object();
    json.member("const", "auto");
    json.close_object();
  }
  if (list_too) {
    json.open_object();
    json.member("type", "array");
    json.key("items");
    json.open_object();
    json.key("type");
    json.open_list();
    json.string("integer");
    if (param.unit != kCpuListUnit) json.string("string");  // ranges
    json.close_list();
    json.close_object();
    json.close_object();
  }
  json.close_list();
}

// What editors show when the pointer rests on a key.
void write_description(JsonText& json, const ParamInfo& param, const std::string& expected) {
  std::string text = std::string(param.help) + "; " + expected;
  if (param.required) text += "; must be given";
  if (!param.default_value.empty()) text += "; default " + std::string(param.default_value);
  if (param.while_running) text += "; may change while running";
  json.member("description", text);
}

void write_param_schema(JsonText& json, const ParamInfo& param) {
  json.key(param.name);
  json.open_object();
  write_description(json, param, expected_text(param));
  write_value(json, param, false);
  json.close_object();
}

void write_setting(JsonText& json, const SettingInfo& setting) {
  json.key(setting.param.name);
  json.open_object();
  write_description(json, setting.param, setting.expected());
  write_value(json, setting.param, setting.share);
  json.close_object();
}

void open_strict_object(JsonText& json) {
  json.member("type", "object");
  json.member_literal("additionalProperties", "false");
}

void write_required(JsonText& json, const std::vector<std::string_view>& names) {
  json.key("required");
  json.open_list();
  for (const std::string_view name : names) json.string(name);
  json.close_list();
}

// Rows of one section stand together in the table.
void write_settings(JsonText& json) {
  std::string_view open_section;
  const auto close_section = [&] {
    if (open_section.empty()) return;
    json.close_object();
    json.close_object();
  };
  for (const SettingInfo& setting : pipeline_settings()) {
    if (setting.section != open_section) {
      close_section();
      open_section = setting.section;
      json.key(setting.section);
      json.open_object();
      open_strict_object(json);
      json.key("properties");
      json.open_object();
    }
    write_setting(json, setting);
  }
  close_section();
}

void write_reference(JsonText& json, std::string_view name) {
  json.key(name);
  json.open_object();
  json.member("$ref", "#/definitions/" + std::string(name));
  json.close_object();
}

// The parameters of every stage, once.
void write_definitions(JsonText& json) {
  json.key("definitions");
  json.open_object();
  for (const ParamInfo& param : common_stage_params()) write_param_schema(json, param);
  json.close_object();
}

// if the kind is this one, then its parameters and no others.
void write_kind_schema(JsonText& json, const StageInfo& info) {
  json.open_object();
  json.key("if");
  json.open_object();
  write_required(json, {"kind"});
  json.key("properties");
  json.open_object();
  json.key("kind");
  json.open_object();
  json.member("const", info.kind);
  json.close_object();
  json.close_object();
  json.close_object();
  json.key("then");
  json.open_object();
  json.member("description", info.help);
  std::vector<std::string_view> required;
  for (const ParamInfo& param : info.params) {
    if (param.required) required.push_back(param.name);
  }
  if (!required.empty()) write_required(json, required);
  json.member_literal("additionalProperties", "false");
  json.key("properties");
  json.open_object();
  json.key("kind");
  json.open_object();
  json.member("description", info.help);
  json.close_object();
  for (const ParamInfo& param : common_stage_params()) write_reference(json, param.name);
  for (const ParamInfo& param : partition_params(info)) write_param_schema(json, param);
  for (const ParamInfo& param : info.params) write_param_schema(json, param);
  json.close_object();
  json.close_object();
  json.close_object();
}

void write_stages(JsonText& json, StageInfos kinds) {
  json.key("stages");
  json.open_object();
  json.member("description", "the stages: a name of your choice, and the kind with its parameters");
  json.member("type", "object");
  json.key("propertyNames");
  json.open_object();
  json.member("pattern", "^" + std::string(kNamePattern) + "$");
  json.close_object();
  json.key("additionalProperties");
  json.open_object();
  json.member("type", "object");
  write_required(json, {"kind"});
  json.key("properties");
  json.open_object();
  json.key("kind");
  json.open_object();
  json.member("description", "what the stage does");
  json.key("enum");
  json.open_list();
  for (const StageInfo* info : kinds) json.string(info->kind);
  json.close_list();
  json.close_object();
  json.close_object();
  json.key("allOf");
  json.open_list();
  for (const StageInfo* info : kinds) write_kind_schema(json, *info);
  json.close_list();
  json.close_object();
  json.close_object();
}

// "^stage\\.(demand|waves)$" with every port of that side that some kind has.
std::string port_pattern(StageInfos kinds, std::span<const PortInfo> StageInfo::*ports) {
  std::set<std::string_view> names;
  for (const StageInfo* info : kinds) {
    for (const PortInfo& port : info->*ports) names.insert(port.name);
  }
  std::string choices;
  for (const std::string_view name : names) choices.append(choices.empty() ? "" : "|").append(name);
  return "^" + std::string(kNamePattern) + "\\.(" + choices + ")$";
}

void write_edges(JsonText& json, StageInfos kinds) {
  json.key("edges");
  json.open_object();
  json.member("description", "the connections: from an output to an input of the same type");
  json.member("type", "array");
  json.key("items");
  json.open_object();
  open_strict_object(json);
  write_required(json, {"from", "to"});
  json.key("properties");
  json.open_object();
  for (const ParamInfo& param : edge_params()) {
    if (param.type != ParamType::text) {
      write_param_schema(json, param);
      continue;
    }
    json.key(param.name);
    json.open_object();
    write_description(json, param, expected_text(param));
    json.member("type", "string");
    json.member("pattern",
                port_pattern(kinds, param.name == "from" ? &StageInfo::outputs : &StageInfo::inputs));
    json.close_object();
  }
  json.close_object();
  json.close_object();
  json.close_object();
}

}  // namespace

std::string pipeline_json_schema(StageInfos kinds) {
  JsonText json;
  json.open_object();
  json.member("$schema", "http://json-schema.org/draft-07/schema#");
  json.member("title", "Colibri pipeline");
  json.member("description",
              "generated by `colibri inspect --schema`; ports and cycles are checked by `colibri check`");
  open_strict_object(json);
  write_required(json, {"version", "stages", "edges"});
  json.key("properties");
  json.open_object();
  json.key("version");
  json.open_object();
  json.member("description", "version of this format");
  json.member_literal("const", std::to_string(kPipelineVersion));
  json.close_object();
  write_settings(json);
  write_stages(json, kinds);
  write_edges(json, kinds);
  json.close_object();
  write_definitions(json);
  json.close_object();
  return std::move(json).take();
}

}  // namespace colibri
