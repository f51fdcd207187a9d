// ObjectReader: strict reading of one JSON object: every key must be there, have its type and be known.
//
// Internal to io/container; includes nlohmann-json.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "io/container/strict_json.hpp"
#include "io/status.hpp"

namespace colibri {

// The word for a value of an enumeration.
template <class Enum>
struct Named {
  Enum value;
  std::string_view name;
};
template <class Enum>
using Names = std::span<const Named<Enum>>;

// Reads the members of one object; the first failure is kept and later reads do nothing.
class ObjectReader {
 public:
  // `object` may be null only when `status` is not ok.
  ObjectReader(const nlohmann::json* object, std::string path, Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (status_ && !object_->is_object())
      fail("must be an object, found " + std::string(json_kind(*object_)));
  }

  // To be called after all members were asked for.
  void refuse_unknown() {
    if (!status_) return;
    for (const auto& [key, value] : object_->items()) {
      if (!asked_.contains(key)) return fail("has an unknown key \"" + key + "\"");
    }
  }

  const nlohmann::json* member(const std::string& key) {
    if (!status_) return nullptr;
    asked_.insert(key);
    const auto found = object_->find(key);
    if (found == object_->end()) {
      fail("lacks the key \"" + key + "\"");
      return nullptr;
    }
    return &*found;
  }

  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) void read(const std::string& key, T& value) {
    const nlohmann::json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > std::numeric_limits<T>::max()) {
      return fail("\"" + key + "\" must be a whole number up to " +
                  std::to_string(std::numeric_limits<T>::max()));
    }
    value = static_cast<T>(found->get<std::uint64_t>());
  }
  void read(const std::string& key, bool& value) {
    const nlohmann::json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return fail("\"" + key + "\" must be true or false");
    value = found->get<bool>();
  }
  void read(const std::string& key, double& value) {
    const nlohmann::json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_number()) return fail("\"" + key + "\" must be a number");
    value = found->get<double>();
  }
  void read(const std::string& key, float& value) {
    double wide = value;
    read(key, wide);
    value = static_cast<float>(wide);
  }
  void read(const std::string& key, std::string& value) {
    const nlohmann::json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_string()) return fail("\"" + key + "\" must be a string");
    value = found->get<std::string>();
  }
  template <class Enum>
  void read(const std::string& key, std::type_identity_t<Names<Enum>> names, Enum& value) {
    std::string text;
    read(key, text);
    if (!status_) return;
    std::string allowed;
    for (const auto& [candidate, name] : names) {
      if (name == text) {
        value = candidate;
        return;
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    fail("\"" + key + "\" is \"" + text + "\"; allowed are " + allowed);
  }
  // Calls `each(element, path)` for every element of a list of at most `limit`.
  template <class Each>
  void read_list(const std::string& key, std::size_t limit, Each each) {
    const nlohmann::json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_array()) return fail("\"" + key + "\" must be a list");
    if (found->size() > limit) {
      return fail("\"" + key + "\" has " + std::to_string(found->size()) + " elements; at most " +
                  std::to_string(limit) + " are allowed");
    }
    for (std::size_t i = 0; i < found->size() && status_; ++i) {
      each((*found)[i], path_ + "." + key + "[" + std::to_string(i) + "]");
    }
  }
  ObjectReader object(const std::string& key) { return {member(key), path_ + "." + key, status_}; }
  void fail(std::string what) {
    if (status_) status_ = Status(ErrorCode::invalid_input, "model spec: " + path_ + " " + std::move(what));
  }

 private:
  const nlohmann::json* object_;
  std::string path_;
  Status& status_;
  std::set<std::string> asked_;
};

}  // namespace colibri
