// Descriptions of kinds as text and JSON.
//
// Both walk the same StageInfo; what a parameter accepts is worded by expected_text, as it is
// in error messages.
#include "topology/describe_kind.hpp"

#include <algorithm>

#include "topology/json_text.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_settings.hpp"

namespace colibri {
namespace {

// In the order of ParamType.
constexpr std::string_view kParamTypeNames[] = {"boolean", "integer", "number", "bytes", "choice", "text"};

std::string_view param_type_name(ParamType type) { return kParamTypeNames[static_cast<std::size_t>(type)]; }

// Columns: two blanks between them, no blanks at the end of a line.
std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  out.resize(std::max(width, text.size()), ' ');
  return out;
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

// "wave (routed)": the state is a part of what an edge joins.
std::string port_type_text(const PortInfo& port) {
  const std::string type(message_type_name(port.type));
  return port.state.empty() ? type : type + " (" + std::string(port.state) + ")";
}

void append_port_lines(std::string& out, std::string_view title, std::span<const PortInfo> ports) {
  if (ports.empty()) return;
  out.append("\n").append(title).append("\n");
  std::size_t name_width = 0, type_width = 0;
  for (const PortInfo& port : ports) {
    name_width = std::max(name_width, port.name.size());
    type_width = std::max(type_width, port_type_text(port).size());
  }
  for (const PortInfo& port : ports) {
    std::string marks;
    if (!port.required) marks += " (optional)";
    if (port.many) marks += " (many edges)";
    if (port.feedback) marks += " (feedback)";
    if (port.by_expert) marks += " (an edge to each stage that shares out the experts)";
    append_line(out, "  " + padded(port.name, name_width) + "  " + padded(port_type_text(port), type_width) +
                         "  " + std::string(port.help) + marks);
  }
}

void append_param_lines(std::string& out, std::string_view title, std::span<const ParamInfo> params) {
  if (params.empty()) return;
  out.append("\n").append(title).append("\n");
  for (const ParamInfo& param : params) {
    const std::string otherwise = param.default_value.empty() ? "empty" : std::string(param.default_value);
    append_line(out, "  " + std::string(param.name) + ": " + expected_text(param) +
                         (param.required ? "; must be given" : "; default " + otherwise) +
                         (param.while_running ? "; may change while running" : ""));
    append_line(out, "      " + std::string(param.help));
  }
}

void write_ports(JsonText& json, std::string_view name, std::span<const PortInfo> ports) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  json.key(name);
  json.open_list();
  for (const PortInfo& port : ports) {
    json.open_object();
    json.member("name", port.name);
    json.member("type", message_type_name(port.type));
    json.member("state", port.state);
    json.member("help", port.help);
    json.member_literal("required", truth(port.required));
    json.member_literal("many", truth(port.many));
    json.member_literal("feedback", truth(port.feedback));
    json.member_literal("by_expert", truth(port.by_expert));
    json.close_object();
  }
  json.close_list();
}

// Opens the object; the caller closes it.
void open_param(JsonText& json, const ParamInfo& param) {
  json.open_object();
  json.member("name", param.name);
  json.member("type", param_type_name(param.type));
  json.member("unit", param.unit);
  json.member("default", param.default_value);
  if (param.type == ParamType::integer || param.type == ParamType::number || param.type == ParamType::bytes) {
    json.member_literal("minimum", number_text(param.minimum));
    if (param.maximum != std::numeric_limits<double>::infinity()) {
      json.member_literal("maximum", number_text(param.maximum));
    }
  }
  if (param.type == ParamType::choice) {
    json.key("choices");
    json.open_list();
    for (const std::string_view choice : split_choices(param.choices)) json.string(choice);
    json.close_list();
  }
  json.member_literal("allow_auto", param.allow_auto ? "true" : "false");
  json.member_literal("required", param.required ? "true" : "false");
  json.member_literal("while_running", param.while_running ? "true" : "false");
  json.member("help", param.help);
}

void write_param(JsonText& json, const ParamInfo& param) {
  open_param(json, param);
  json.close_object();
}

void write_kind(JsonText& json, const StageInfo& info) {
  json.open_object();
  json.member("kind", info.kind);
  json.member("help", info.help);
  json.member_literal("source", info.source ? "true" : "false");
  json.member_literal("partitioned", info.partitioned ? "true" : "false");
  write_ports(json, "inputs", info.inputs);
  write_ports(json, "outputs", info.outputs);
  json.key("params");
  json.open_list();
  for (const ParamInfo& param : info.params) write_param(json, param);
  for (const ParamInfo& param : partition_params(info)) write_param(json, param);
  for (const ParamInfo& param : common_stage_params()) write_param(json, param);
  json.close_list();
  json.key("metrics");
  json.open_list();
  for (const MetricInfo& metric : info.metrics) {
    json.open_object();
    json.member("name", metric.name);
    json.member("help", metric.help);
    json.close_object();
  }
  json.close_list();
  json.close_object();
}

}  // namespace

std::string describe_kind(const StageInfo& info) {
  std::string out;
  append_line(out, std::string(info.kind) + ": " + std::string(info.help) + (info.source ? " (source)" : ""));
  append_port_lines(out, "inputs, earlier ones served first", info.inputs);
  append_port_lines(out, "outputs", info.outputs);
  append_param_lines(out, "parameters", info.params);
  append_param_lines(out, "parameters of kinds that share out the experts", partition_params(info));
  append_param_lines(out, "parameters of every stage", common_stage_params());
  if (!info.metrics.empty()) {
    out += "\nmetrics\n";
    std::size_t width = 0;
    for (const MetricInfo& metric : info.metrics) width = std::max(width, metric.name.size());
    for (const MetricInfo& metric : info.metrics) {
      append_line(out, "  " + padded(metric.name, width) + "  " + std::string(metric.help));
    }
  }
  return out;
}

std::string describe_kind_json(const StageInfo& info) {
  JsonText json;
  write_kind(json, info);
  return std::move(json).take();
}

std::string list_kinds(StageInfos kinds) {
  std::size_t width = 0;
  for (const StageInfo* info : kinds) width = std::max(width, info->kind.size());
  std::string out;
  for (const StageInfo* info : kinds) {
    append_line(out, padded(info->kind, width) + "  " + std::string(info->help));
  }
  return out;
}

std::string list_kinds_json(StageInfos kinds) {
  JsonText json;
  json.open_object();
  json.key("kinds");
  json.open_list();
  for (const StageInfo* info : kinds) write_kind(json, *info);
  json.close_list();
  json.key("settings");
  json.open_list();
  for (const SettingInfo& setting : pipeline_settings()) {
    open_param(json, setting.param);
    json.member("section", setting.section);
    json.member_literal("share", setting.share ? "true" : "false");
    json.close_object();
  }
  json.close_list();
  json.key("edge");
  json.open_list();
  for (const ParamInfo& param : edge_params()) write_param(json, param);
  json.close_list();
  json.close_object();
  return std::move(json).take();
}

}  // namespace colibri
