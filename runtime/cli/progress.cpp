// The words and the pace of a progress line.
#include "runtime/cli/progress.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::seconds kLogPeriod{10};
// A rate over less than this says nothing.
constexpr double kLeastSeconds = 0.05;

std::string amount(ProgressUnit unit, std::uint64_t value) {
  return unit == ProgressUnit::bytes ? format_bytes(value) : std::to_string(value);
}

std::string rate_text(ProgressUnit unit, double per_second) {
  if (unit == ProgressUnit::bytes) return format_bytes(static_cast<std::uint64_t>(per_second)) + "/s";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f/s", per_second);
  return text;
}

// "45 s", "3 min 05 s", "2 h 10 min"
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::ceil(seconds));
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof(text), "%" PRIu64 " s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof(text), "%" PRIu64 " min %02" PRIu64 " s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%" PRIu64 " h %02" PRIu64 " min", whole / 3600, whole % 3600 / 60);
  }
  return text;
}

}  // namespace

std::string format_progress(std::string_view label, ProgressUnit unit, const ProgressState& state) {
  std::string text(label);
  text += ": " + amount(unit, state.done);
  if (state.total > 0) {
    const double share = static_cast<double>(state.done) / static_cast<double>(state.total);
    text += " of " + amount(unit, state.total);
    text += " (" + std::to_string(static_cast<int>(share * 100)) + " %)";
  }
  const std::uint64_t fresh = state.done - std::min(state.done, state.done_at_start);
  if (fresh > 0 && state.elapsed_seconds >= kLeastSeconds) {
    const double per_second = static_cast<double>(fresh) / state.elapsed_seconds;
    text += ", " + rate_text(unit, per_second);
    if (state.total > state.done) {
      text += ", " + duration_text(static_cast<double>(state.total - state.done) / per_second) + " left";
    }
  }
  if (!state.extra.empty()) text.append(", ").append(state.extra);
  return text;
}

Progress::Progress(Console& console, std::string label, ProgressUnit unit)
    : console_(console), label_(std::move(label)), unit_(unit), start_(Clock::now()), next_(start_) {
  if (!console_.terminal()) next_ += kLogPeriod;
}

Progress::~Progress() { finish(); }

bool Progress::due() const noexcept { return !console_.quiet() && Clock::now() >= next_; }

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view extra) {
  if (!started_) {
    started_ = true;
    done_at_start_ = done;
  }
  if (!due()) return;
  const Clock::time_point now = Clock::now();
  ProgressState state;
  state.done = done;
  state.total = total;
  state.done_at_start = done_at_start_;
  state.elapsed_seconds = std::chrono::duration<double>(now - start_).count();
  state.extra = extra;
  const std::string text = format_progress(label_, unit_, state);
  if (console_.terminal()) {
    console_.show_line(text);
    next_ = now + kTerminalPeriod;
  } else {
    console_.info(text);
    next_ = now + kLogPeriod;
  }
}

void Progress::finish() { console_.clear_line(); }

}  // namespace colibri::cli
