#include "runtime/metrics/run_report.hpp"

#include <algorithm>
#include <cstdio>

#include "io/text/json_output.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

// "812 ns", "4.1 us", "12 ms", "3.2 s"
std::string duration(double seconds) {
  char text[32];
  if (seconds < 1e-6) {
    std::snprintf(text, sizeof text, "%.0f ns", seconds * 1e9);
  } else if (seconds < 1e-3) {
    std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.2f s", seconds);
  }
  return text;
}

template <class Number>
std::string json_number(Number value) {
  std::string text;
  append_json_number(text, value);
  return text;
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

template <class Value>
std::string object_of(const std::vector<std::pair<std::string, Value>>& pairs) {
  std::string text = "{";
  for (const auto& [name, value] : pairs) {
    if (text.size() > 1) text += ", ";
    text += json_string(name) + ": " + json_number(value);
  }
  return text + "}";
}

std::string stage_json(const StageReport& stage) {
  std::string text = "    {\"name\": " + json_string(stage.name) + ", \"kind\": " + json_string(stage.kind) +
                     ", \"items\": " + std::to_string(stage.items) +
                     ", \"messages\": " + std::to_string(stage.messages) +
                     ", \"hop_seconds\": " + json_number(stage.hop_seconds) +
                     ", \"busy_seconds\": " + json_number(stage.busy_seconds);
  text += ", \"p50_seconds\": " + json_number(stage.p50_seconds) +
          ", \"p95_seconds\": " + json_number(stage.p95_seconds) +
          ", \"p99_seconds\": " + json_number(stage.p99_seconds) +
          ", \"max_seconds\": " + json_number(stage.max_seconds);
  text += ", \"queue_p50_seconds\": " + json_number(stage.queue_p50_seconds) +
          ", \"queue_p95_seconds\": " + json_number(stage.queue_p95_seconds) +
          ", \"queue_p99_seconds\": " + json_number(stage.queue_p99_seconds) +
          ", \"queue_max_seconds\": " + json_number(stage.queue_max_seconds);
  text += ", \"queue_high_water\": " + std::to_string(stage.queue_high_water);
  text += ", \"blocked_seconds\": " + object_of(stage.blocked_seconds);
  return text + ", \"metrics\": " + object_of(stage.metrics) + "}";
}

}  // namespace

std::uint64_t StageReport::metric(std::string_view metric_name) const noexcept {
  const auto found =
      std::find_if(metrics.begin(), metrics.end(), [&](const auto& m) { return m.first == metric_name; });
  return found == metrics.end() ? 0 : found->second;
}

double RunReport::tokens_per_second() const noexcept {
  return wall_seconds > 0 ? static_cast<double>(prompt_tokens + generated_tokens) / wall_seconds : 0;
}

double RunReport::hit_rate() const noexcept {
  return demands > 0 ? static_cast<double>(hits) / static_cast<double>(demands) : 1;
}

double RunReport::reads_per_visit() const noexcept {
  return distinct_bytes > 0 ? static_cast<double>(bytes_read) / static_cast<double>(distinct_bytes) : 1;
}

double RunReport::read_over_floor() const noexcept {
  return floor_bytes > 0 ? static_cast<double>(bytes_read + prewarm_bytes) / static_cast<double>(floor_bytes)
                         : 1;
}

double RunReport::bytes_per_generated_token() const noexcept {
  return generated_tokens > 0 ? static_cast<double>(bytes_read) / static_cast<double>(generated_tokens) : 0;
}

double RunReport::hop_share() const noexcept { return wall_seconds > 0 ? hop_seconds / wall_seconds : 0; }

std::string RunReport::to_table() const {
  std::string text;
  char row[256];
  std::snprintf(row, sizeof row, "%-14s %12s %10s %6s %9s %9s %9s %9s %6s\n", "stage", "items", "busy",
                "busy%", "p50", "p95", "p99", "wait p50", "queue");
  text += row;
  for (const StageReport& stage : stages) {
    std::snprintf(row, sizeof row, "%-14s %12llu %10s %5.1f%% %9s %9s %9s %9s %6u\n", stage.name.c_str(),
                  static_cast<unsigned long long>(stage.items), duration(stage.busy_seconds).c_str(),
                  wall_seconds > 0 ? 100 * stage.busy_seconds / wall_seconds : 0,
                  duration(stage.p50_seconds).c_str(), duration(stage.p95_seconds).c_str(),
                  duration(stage.p99_seconds).c_str(), duration(stage.queue_p50_seconds).c_str(),
                  stage.queue_high_water);
    text += row;
  }
  const double wall = std::max(wall_seconds, 1e-9);
  if (prompt_tokens + generated_tokens > 0) {
    std::snprintf(
        row, sizeof row,
        "\n%llu prompt + %llu generated tokens in %s: %.1f tokens/s (%.1f generated/s), %llu steps, "
        "%s kernels\n",
        static_cast<unsigned long long>(prompt_tokens), static_cast<unsigned long long>(generated_tokens),
        duration(wall_seconds).c_str(), tokens_per_second(), static_cast<double>(generated_tokens) / wall,
        static_cast<unsigned long long>(steps), kernels.c_str());
  } else {
    // Hidden states went through, not tokens: who has them tells how many.
    std::snprintf(row, sizeof row, "\n%s, %s kernels\n", duration(wall_seconds).c_str(), kernels.c_str());
  }
  text += row;
  std::snprintf(row, sizeof row,
                "read %s (%s distinct, %.2f reads a visit), %s/s; hit rate %.1f%%; wasted hints %s\n",
                format_bytes(bytes_read).c_str(), format_bytes(distinct_bytes).c_str(), reads_per_visit(),
                format_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes_read) / wall)).c_str(),
                100 * hit_rate(), format_bytes(wasted_hint_bytes).c_str());
  text += row;
  text += reads_text();
  std::snprintf(row, sizeof row, "hops: %llu messages, %s, %.2f%% of the time\n",
                static_cast<unsigned long long>(messages), duration(hop_seconds).c_str(), 100 * hop_share());
  text += row;
  std::snprintf(row, sizeof row, "memory: peak %s of %s planned\n", format_bytes(peak_rss_bytes).c_str(),
                format_bytes(planned_bytes).c_str());
  return text + row;
}

// How far the reads are from what they could be; empty when nothing was demanded.
std::string RunReport::reads_text() const {
  if (demands == 0) return {};
  char part[96];
  std::string text;
  if (floor_bytes > 0) {
    std::snprintf(part, sizeof part, "floor %s (%.2f of it read)", format_bytes(floor_bytes).c_str(),
                  read_over_floor());
    text += part;
  }
  if (belady_hits) {
    std::snprintf(part, sizeof part, "%sBelady's hit rate %.1f%%", text.empty() ? "" : "; ",
                  100 * static_cast<double>(*belady_hits) / static_cast<double>(demands));
    text += part;
  }
  if (prewarm_bytes > 0) {
    text += (text.empty() ? "" : "; ") + format_bytes(prewarm_bytes) + " read ahead of the first demands";
  }
  if (generated_tokens > 0) {
    const auto each = static_cast<std::uint64_t>(bytes_per_generated_token());
    text += (text.empty() ? "" : "; ") + format_bytes(each) + " read a generated token";
  }
  if (!text.empty()) text += "\n";
  if (small_step_seconds > 0) {
    std::snprintf(
        part, sizeof part, "steps below half of max_rows: %.1f%% of the time, %.1f%% of the bytes\n",
        wall_seconds > 0 ? 100 * small_step_seconds / wall_seconds : 0,
        bytes_read > 0 ? 100 * static_cast<double>(small_step_bytes) / static_cast<double>(bytes_read) : 0);
    text += part;
  }
  return text;
}

std::string RunReport::to_json() const {
  std::string text = "{\n  \"format_version\": 1";
  auto field = [&text](std::string_view name, const std::string& value) {
    text += ",\n  \"" + std::string(name) + "\": " + value;
  };
  field("wall_seconds", json_number(wall_seconds));
  field("prompt_tokens", std::to_string(prompt_tokens));
  field("generated_tokens", std::to_string(generated_tokens));
  field("tokens_per_second", json_number(tokens_per_second()));
  field("bytes_read", std::to_string(bytes_read));
  field("distinct_bytes", std::to_string(distinct_bytes));
  field("reads_per_visit", json_number(reads_per_visit()));
  field("wasted_hint_bytes", std::to_string(wasted_hint_bytes));
  field("prewarm_bytes", std::to_string(prewarm_bytes));
  field("floor_bytes", std::to_string(floor_bytes));
  field("read_over_floor", json_number(read_over_floor()));
  field("bytes_per_generated_token", json_number(bytes_per_generated_token()));
  field("small_step_bytes", std::to_string(small_step_bytes));
  field("small_step_seconds", json_number(small_step_seconds));
  field("demands", std::to_string(demands));
  field("hits", std::to_string(hits));
  field("hit_rate", json_number(hit_rate()));
  field("belady_hits", belady_hits ? std::to_string(*belady_hits) : "null");
  field("peak_rss_bytes", std::to_string(peak_rss_bytes));
  field("planned_bytes", std::to_string(planned_bytes));
  field("steps", std::to_string(steps));
  field("messages", std::to_string(messages));
  field("hop_seconds", json_number(hop_seconds));
  field("hop_share", json_number(hop_share()));
  field("kernels", json_string(kernels));
  text += ",\n  \"stages\": [\n";
  for (std::size_t i = 0; i < stages.size(); ++i)
    text += stage_json(stages[i]) + (i + 1 < stages.size() ? ",\n" : "\n");
  return text + "  ]\n}\n";
}

}  // namespace colibri
