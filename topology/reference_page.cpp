// The reference of pipeline files in Markdown, for README.md.
//
// The same tables as everywhere; what a parameter accepts is worded by expected_text, as in errors.
#include "topology/describe_kind.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_settings.hpp"

namespace colibri {
namespace {

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : "`" + std::string(text) + "`"; }

void append_row(std::string& out, std::initializer_list<std::string> cells) {
  out += "|";
  for (const std::string& text : cells) out += text.empty() ? " |" : " " + text + " |";
  out += "\n";
}

void append_param(std::string& out, const std::string& name, const ParamInfo& param,
                  const std::string& expected) {
  const std::string changes = param.while_running ? "; may change while running" : "";
  const std::string otherwise = param.required ? "must be given" : code(param.default_value);
  append_row(out, {code(name), cell(expected), otherwise, cell(param.help) + changes});
}

void append_param_rows(std::string& out, std::initializer_list<std::span<const ParamInfo>> tables) {
  bool any = false;
  for (const auto& params : tables) {
    for (const ParamInfo& param : params) {
      if (!any) out += "\n| parameter | value | default | |\n| --- | --- | --- | --- |\n";
      any = true;
      append_param(out, std::string(param.name), param, expected_text(param));
    }
  }
}

std::string marks(const PortInfo& port) {
  std::string text;
  if (!port.required) text += "; may be left open";
  if (port.many) text += "; any number of edges";
  if (port.feedback) text += "; closes a cycle";
  if (port.by_expert) text += "; an edge to each stage that shares out the experts";
  return text;
}

void append_port_rows(std::string& out, std::string_view direction, std::span<const PortInfo> ports) {
  for (const PortInfo& port : ports) {
    std::string type(message_type_name(port.type));
    if (!port.state.empty()) type += ", " + std::string(port.state);
    append_row(out,
               {std::string(direction) + " " + code(port.name), cell(type), cell(port.help) + marks(port)});
  }
}

void append_kind(std::string& out, const StageInfo& info) {
  out += "\n#### " + code(info.kind) + "\n\n" + std::string(info.help) + "\n";
  out += "\n| port | messages | |\n| --- | --- | --- |\n";
  append_port_rows(out, "in", info.inputs);
  append_port_rows(out, "out", info.outputs);
  append_param_rows(out, {partition_params(info), info.params});
  if (info.metrics.empty()) return;
  out += "\n| metric | |\n| --- | --- |\n";
  for (const MetricInfo& metric : info.metrics) append_row(out, {code(metric.name), cell(metric.help)});
}

}  // namespace

std::string reference_markdown(StageInfos kinds) {
  std::string out = "### Settings\n\n| setting | value | default | |\n| --- | --- | --- | --- |\n";
  for (const SettingInfo& setting : pipeline_settings()) {
    append_param(out, setting.path(), setting.param, setting.expected());
  }
  out += "\n### Edges\n\n| key | value | default | |\n| --- | --- | --- | --- |\n";
  for (const ParamInfo& param : edge_params()) {
    append_param(out, std::string(param.name), param, expected_text(param));
  }
  out += "\n### Stages\n\nEvery stage has a `kind` and may have:\n";
  append_param_rows(out, {common_stage_params()});
  for (const StageInfo* info : kinds) append_kind(out, *info);
  return out;
}

}  // namespace colibri
