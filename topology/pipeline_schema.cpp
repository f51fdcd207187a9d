// The JSON Schema of pipeline files, from the same tables that check them.
//
// Editors use it to complete and to underline. Ports and the graph are beyond a schema: those
// need check_pipeline.
#include "topology/describe_kind.hpp"
#include "topology/json_text.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_settings.hpp"

namespace colibri {
namespace {

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

void write_param(JsonText& json, const ParamInfo& param, bool share) {
  json.key(param.name);
  json.open_object();
  std::string help(param.help);
  if (!param.default_value.empty()) help += " (default " + std::string(param.default_value) + ")";
  json.member("description", help);
  const bool cpus = param.unit == "CPU list";
  const bool list_too = cpus || param.unit == "list of experts";
  if (!param.allow_auto && !list_too) {
    write_type(json, param, share);
  } else {
    json.key("anyOf");
    json.open_list();
    json.open_object();
    write_type(json, param, share);
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
      if (cpus) {
        json.member("type", "integer");
      } else {
        json.key("type");
        json.open_list();
        json.string("integer");
        json.string("string");
        json.close_list();
      }
      json.close_object();
      json.close_object();
    }
    json.close_list();
  }
  json.close_object();
}

void open_strict_object(JsonText& json) {
  json.member("type", "object");
  json.member_literal("additionalProperties", "false");
}

void write_required(JsonText& json, std::initializer_list<std::string_view> names) {
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
    write_param(json, setting.param, setting.share);
  }
  close_section();
}

// One alternative a kind, told apart by its `kind`: editors then offer the parameters of that kind.
void write_stages(JsonText& json, StageInfos kinds) {
  json.key("stages");
  json.open_object();
  json.member("type", "object");
  json.key("propertyNames");
  json.open_object();
  json.member("pattern", "^[a-z][a-z0-9_]{0,63}$");
  json.close_object();
  json.key("additionalProperties");
  json.open_object();
  json.key("oneOf");
  json.open_list();
  for (const StageInfo* info : kinds) {
    json.open_object();
    json.member("description", info->help);
    open_strict_object(json);
    write_required(json, {"kind"});
    json.key("properties");
    json.open_object();
    json.key("kind");
    json.open_object();
    json.member("const", info->kind);
    json.close_object();
    for (const ParamInfo& param : common_stage_params()) write_param(json, param, false);
    for (const ParamInfo& param : partition_params(*info)) write_param(json, param, false);
    for (const ParamInfo& param : info->params) write_param(json, param, false);
    json.close_object();
    json.close_object();
  }
  json.close_list();
  json.close_object();
  json.close_object();
}

void write_edges(JsonText& json) {
  json.key("edges");
  json.open_object();
  json.member("type", "array");
  json.key("items");
  json.open_object();
  open_strict_object(json);
  write_required(json, {"from", "to"});
  json.key("properties");
  json.open_object();
  for (const ParamInfo& param : edge_params()) write_param(json, param, false);
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
  open_strict_object(json);
  write_required(json, {"version", "stages", "edges"});
  json.key("properties");
  json.open_object();
  json.key("version");
  json.open_object();
  json.member_literal("const", std::to_string(kPipelineVersion));
  json.close_object();
  write_settings(json);
  write_stages(json, kinds);
  write_edges(json);
  json.close_object();
  json.close_object();
  return std::move(json).take();
}

}  // namespace colibri
