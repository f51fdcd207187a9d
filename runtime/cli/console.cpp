// Console over spdlog (one synchronous sink on stderr) and plain stdio for results.
#include "runtime/cli/console.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace colibri::cli {
namespace {

constexpr std::size_t kDefaultColumns = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultColumns;
  return size.ws_col;
}

}  // namespace

Console::Console() : terminal_(::isatty(STDERR_FILENO) == 1) {
  // Not registered with spdlog: the logger lives and dies with this object.
  logger_ = std::make_shared<spdlog::logger>("colibri", std::make_shared<spdlog::sinks::stderr_sink_st>());
  logger_->set_pattern("colibri: %l: %v");
  logger_->flush_on(spdlog::level::trace);
}

Console::~Console() { clear_line(); }

void Console::set_quiet(bool quiet) {
  const std::lock_guard lock(mutex_);
  quiet_ = quiet;
}

void Console::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) write_failed_ = true;
}

Status Console::flush() {
  const std::lock_guard lock(mutex_);
  errno = 0;
  if (std::fflush(stdout) == 0 && !write_failed_) return Status::ok();
  const std::string reason = errno == 0 ? "the device refused it" : std::strerror(errno);
  return Status(ErrorCode::io, "cannot write to standard output: " + reason);
}

void Console::error(const Status& status) { log(Level::error, status.to_string()); }
void Console::error(std::string_view sentence) { log(Level::error, sentence); }
void Console::warning(std::string_view sentence) { log(Level::warning, sentence); }
void Console::info(std::string_view sentence) { log(Level::info, sentence); }

void Console::log(Level level, std::string_view sentence) {
  const std::lock_guard lock(mutex_);
  if (quiet_ && level != Level::error) return;
  erase_line();
  const spdlog::string_view_t text(sentence.data(), sentence.size());
  switch (level) {
    case Level::error: logger_->error(text); break;
    case Level::warning: logger_->warn(text); break;
    case Level::info: logger_->info(text); break;
  }
  draw_line();
}

void Console::write_report(std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase_line();
  std::fwrite(text.data(), 1, text.size(), stderr);
  draw_line();
}

void Console::show_line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!terminal_ || quiet_) return;
  // One column stays free: a full line would wrap, and erasing reaches one row only.
  line_ = text.substr(0, terminal_columns() - 1);
  erase_line();
  draw_line();
}

void Console::clear_line() {
  const std::lock_guard lock(mutex_);
  erase_line();
  line_.clear();
}

void Console::erase_line() {
  if (!line_.empty()) std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stderr);
}

void Console::draw_line() {
  if (line_.empty()) return;
  std::fwrite(line_.data(), 1, line_.size(), stderr);
  std::fflush(stderr);
}

}  // namespace colibri::cli
