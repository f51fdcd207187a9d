#include "runtime/metrics/prometheus.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>

namespace colibri {
namespace {

// A backslash, a line's end, and in labels a quote.
std::string escaped(std::string_view text, bool label) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (label && c == '"')) out += '\\';
    out += c;
  }
  return out;
}

std::string sample_value(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : "NaN";
}
std::string sample_value(std::uint64_t value) { return std::to_string(value); }

class Exposition {
 public:
  void family(const std::string& name, std::string_view help) {
    if (!help.empty()) text_ += "# HELP " + name + " " + escaped(help, false) + "\n";
    text_ += "# TYPE " + name + (name.ends_with("_total") ? " counter\n" : " gauge\n");
  }
  void sample(const std::string& name, const std::string& labels, const std::string& value) {
    text_ += name + labels + " " + value + "\n";
  }
  template <class Value>
  void single(const std::string& name, std::string_view help, Value value) {
    family(name, help);
    sample(name, "", sample_value(value));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string stage_label(const StageReport& stage) { return "{stage=\"" + escaped(stage.name, true) + "\"}"; }

void add_run(const RunReport& report, Exposition& out) {
  out.single("colibri_wall_seconds", "time of the job so far", report.wall_seconds);
  out.single("colibri_prompt_tokens_total", "rows of prompt tokens put into steps", report.prompt_tokens);
  out.single("colibri_generated_tokens_total", "tokens generated", report.generated_tokens);
  out.single("colibri_steps_total", "steps built", report.steps);
  out.single("colibri_bytes_read_total", "bytes of experts read for visits", report.bytes_read);
  out.single("colibri_distinct_bytes_total", "bytes of these, each record once a visit",
             report.distinct_bytes);
  out.single("colibri_wasted_hint_bytes_total", "bytes read ahead and not used", report.wasted_hint_bytes);
  out.single("colibri_expert_demands_total", "experts demanded by visits", report.demands);
  out.single("colibri_expert_hits_total", "of these, found in a slot", report.hits);
  out.single("colibri_peak_resident_bytes", "most memory that the process had", report.peak_rss_bytes);
  out.single("colibri_planned_bytes", "memory that was planned", report.planned_bytes);
}

void add_stages(const RunReport& report, Exposition& out) {
  const auto each = [&](const std::string& name, std::string_view help, auto value) {
    out.family(name, help);
    for (const StageReport& stage : report.stages)
      out.sample(name, stage_label(stage), sample_value(value(stage)));
  };
  each("colibri_stage_items_total", "calls into the stage", [](const StageReport& s) { return s.items; });
  each("colibri_stage_busy_seconds_total", "time in calls into the stage",
       [](const StageReport& s) { return s.busy_seconds; });
  each("colibri_stage_call_p50_seconds", "median of a call",
       [](const StageReport& s) { return s.p50_seconds; });
  each("colibri_stage_call_p99_seconds", "99th percentile of a call",
       [](const StageReport& s) { return s.p99_seconds; });
  each("colibri_stage_queue_p99_seconds", "99th percentile of the time that a message waits",
       [](const StageReport& s) { return s.queue_p99_seconds; });
  each("colibri_stage_queue_high_water", "most messages that waited on an edge to the stage",
       [](const StageReport& s) { return std::uint64_t{s.queue_high_water}; });
  out.family("colibri_stage_blocked_seconds_total", "time in which the stage had a reason to wait");
  for (const StageReport& stage : report.stages) {
    for (const auto& [reason, seconds] : stage.blocked_seconds) {
      std::string labels = stage_label(stage);
      labels.insert(labels.size() - 1, ",reason=\"" + reason + "\"");
      out.sample("colibri_stage_blocked_seconds_total", labels, sample_value(seconds));
    }
  }
}

std::string_view help_of(std::span<const StageInfo* const> kinds, std::string_view kind,
                         std::string_view metric) {
  for (const StageInfo* info : kinds) {
    if (info->kind != kind) continue;
    for (const MetricInfo& declared : info->metrics) {
      if (declared.name == metric) return declared.help;
    }
  }
  return {};
}

// A family for each metric of each kind: all stages of the kind have it.
void add_kinds(const RunReport& report, std::span<const StageInfo* const> kinds, Exposition& out) {
  std::set<std::string_view> done;
  for (const StageReport& first : report.stages) {
    if (!done.insert(first.kind).second) continue;
    for (const auto& [metric, ignored] : first.metrics) {
      const std::string name = "colibri_" + first.kind + "_" + metric;
      out.family(name, help_of(kinds, first.kind, metric));
      for (const StageReport& stage : report.stages) {
        if (stage.kind == first.kind)
          out.sample(name, stage_label(stage), sample_value(stage.metric(metric)));
      }
    }
  }
}

}  // namespace

std::string prometheus_text(const RunReport& report, std::span<const StageInfo* const> kinds) {
  Exposition out;
  add_run(report, out);
  add_stages(report, out);
  add_kinds(report, kinds, out);
  return out.take();
}

}  // namespace colibri
