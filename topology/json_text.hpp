// Writes indented JSON, key by key: schemas and descriptions that people read and commit.
//
// The caller opens and closes what it writes; commas, line breaks and quoting are done here.
// Order is that of the calls, so that generated files change only where their source does.
#pragma once

#include <string>
#include <string_view>

#include "io/text/json_output.hpp"

namespace colibri {

class JsonText {
 public:
  void open_object() { open('{'); }
  void close_object() { close('}'); }
  void open_list() { open('['); }
  void close_list() { close(']'); }

  // The next value belongs to this key.
  void key(std::string_view name) {
    separate();
    append_json_string(out_, name);
    out_ += ": ";
    after_key_ = true;
  }
  void string(std::string_view text) {
    separate();
    append_json_string(out_, text);
  }
  // A number, true or false, as it stands.
  void literal(std::string_view text) {
    separate();
    out_ += text;
  }

  void member(std::string_view name, std::string_view text) {
    key(name);
    string(text);
  }
  void member_literal(std::string_view name, std::string_view text) {
    key(name);
    literal(text);
  }

  // The whole text, with a final newline.
  std::string take() && { return std::move(out_) + "\n"; }

 private:
  void open(char bracket) {
    separate();
    out_ += bracket;
    ++depth_;
    empty_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!empty_) new_line();
    out_ += bracket;
    empty_ = false;
  }
  void separate() {
    if (!after_key_ && depth_ > 0) {
      if (!empty_) out_ += ',';
      new_line();
    }
    after_key_ = false;
    empty_ = false;
  }
  void new_line() {
    out_ += '\n';
    out_.append(2 * depth_, ' ');
  }

  std::string out_;
  std::size_t depth_ = 0;
  bool empty_ = true;  // of the innermost open object or list
  bool after_key_ = false;
};

}  // namespace colibri
