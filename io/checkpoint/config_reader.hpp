// ConfigReader: reads keys of a config.json, keeps every problem, and knows what nobody asked for.
//
// Null means absent, as Hugging Face files use it. A key that was not asked for and is not known to
// be harmless is a problem: it may change the math. Included from .cpp files only (nlohmann).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

class ConfigReader {
 public:
  // `object` outlives the reader. `path` is put before keys in problems: "" or "rope_scaling.".
  ConfigReader(const nlohmann::json& object, std::string path, std::vector<std::string>& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // The value, or null when absent or null. Marks the key as understood.
  const nlohmann::json* find(std::string_view key);

  // A value of the wrong type or outside the range is a problem and reads as absent.
  std::optional<std::uint32_t> unsigned_number(std::string_view key, std::uint32_t least, std::uint32_t most);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> string(std::string_view key);
  // As above, and absent is a problem; the result is then `least` or 0.
  std::uint32_t required_unsigned(std::string_view key, std::uint32_t least, std::uint32_t most);
  double required_number(std::string_view key);

  void problem(std::string sentence) { problems_.push_back(std::move(sentence)); }
  void wrong(std::string_view key, const std::string& what) {
    problem(path_ + std::string(key) + " " + what);
  }

  // Keys that change nothing at inference.
  void ignore(std::span<const std::string_view> keys);
  // Adds a problem for every key that was neither read nor ignored, unless its value turns it off:
  // null, false, 0, "", [] or {}.
  void refuse_unread();

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::vector<std::string>& problems_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace colibri
