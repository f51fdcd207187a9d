// Console: where the program's words go. Results on stdout, everything else on stderr.
//
// Log lines are "colibri: error: ...", "colibri: warning: ..." and "colibri: info: ..."; this is
// the only place that knows the form. On a terminal one more line, redrawn in place, may stand
// below them (progress); it is cleared before a log line and drawn again after it.
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "io/status.hpp"

namespace spdlog {
class logger;
}  // namespace spdlog

namespace colibri::cli {

class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Leaves out everything but errors and results.
  void set_quiet(bool quiet);
  bool quiet() const noexcept { return quiet_; }

  // Results. A failed write is reported by flush.
  void print(std::string_view text);
  Status flush();

  // "place: inner place: sentence", as the status tells it.
  void error(const Status& status);
  void error(std::string_view sentence);
  void warning(std::string_view sentence);
  void info(std::string_view sentence);
  // Text on stderr without a prefix (tables). Printed even when quiet.
  void write_report(std::string_view text);

  // Whether stderr is a terminal, where a line can be redrawn.
  bool terminal() const noexcept { return terminal_; }
  // Replaces the redrawn line; cut to the width of the terminal. Does nothing elsewhere.
  void show_line(std::string_view text);
  void clear_line();

 private:
  enum class Level { error, warning, info };
  void log(Level level, std::string_view sentence);
  void erase_line();
  void draw_line();

  std::mutex mutex_;
  std::shared_ptr<spdlog::logger> logger_;
  std::string line_;  // what stands in the redrawn line; empty: none
  bool terminal_ = false;
  bool quiet_ = false;
  bool write_failed_ = false;
};

}  // namespace colibri::cli
