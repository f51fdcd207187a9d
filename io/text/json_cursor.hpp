// A checked view of one value in a parsed JSON document: every read names the full path of
// what is missing or has the wrong type, so that readers of untrusted files stay short.
// The JSON library is not visible here; only .cpp files include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

class JsonCursor {
 public:
  // `nlohmann_value` points to a nlohmann::json that outlives the cursor; null means absent.
  JsonCursor(const void* nlohmann_value, std::string path);

  const std::string& path() const noexcept { return path_; }
  // Whether the value is there; a JSON null counts as absent.
  bool exists() const noexcept { return value_ != nullptr; }

  // The member `key`: absent if it is not there or this is not an object.
  JsonCursor operator[](std::string_view key) const;
  // The elements of an array; an error for anything else.
  Result<std::vector<JsonCursor>> elements() const;

  Status expect_object() const;
  bool is_zero() const;  // a number equal to 0
  Result<std::string> string() const;
  Result<bool> boolean() const;
  Result<bool> boolean_or(bool fallback) const;  // `fallback` if absent
  Result<std::int64_t> integer(std::int64_t lowest, std::int64_t highest) const;

 private:
  Status wrong_type(std::string_view expected) const;

  const void* value_;  // a nlohmann::json
  std::string path_;   // "pre_tokenizer.pretokenizers[0].pattern"
};

}  // namespace colibri
