// Rope scaling: default, yarn (https://arxiv.org/abs/2309.00071) and llama3, as in the
// modeling_rope_utils.py of transformers, in double precision.
#include "io/checkpoint/rope_config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/container/strict_json.hpp"

namespace colibri {
namespace {

constexpr double kLargestFactor = 1e6;
constexpr double kLargestTheta = 1e12;

// A number that must be positive; absent or wrong reads as `fallback`.
double positive(ConfigReader& reader, std::string_view key, double fallback, double most) {
  const std::optional<double> value = reader.number(key);
  if (!value) return fallback;
  if (*value > 0.0 && *value <= most) return *value;
  reader.wrong(key,
               "must be positive and at most " + std::to_string(most) + ", found " + std::to_string(*value));
  return fallback;
}

double required_positive(ConfigReader& reader, std::string_view key, double most) {
  if (reader.find(key) == nullptr) reader.wrong(key, "is missing");
  return positive(reader, key, 1.0, most);
}

std::vector<double> plain_frequencies(double theta, std::uint32_t dim) {
  std::vector<double> frequencies(dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
  }
  return frequencies;
}

// Low frequencies are divided by the factor, high ones stay, with a ramp between the two dimensions that
// turn beta_fast and beta_slow times over the original context.
void scale_yarn(ConfigReader& reader, double theta, std::uint32_t dim, double max_positions, RopeSpec& rope) {
  const double original =
      positive(reader, "original_max_position_embeddings", max_positions, kMaxSequenceLength);
  const double factor = positive(reader, "factor", max_positions / original, kLargestFactor);
  const double beta_fast = positive(reader, "beta_fast", 32.0, kLargestFactor);
  const double beta_slow = positive(reader, "beta_slow", 1.0, kLargestFactor);
  const std::optional<double> attention_factor = reader.number("attention_factor");
  const std::optional<double> mscale = reader.number("mscale");
  const std::optional<double> mscale_all_dim = reader.number("mscale_all_dim");
  const bool truncate = reader.boolean("truncate").value_or(true);
  if (theta <= 1.0)
    return reader.wrong("rope_theta", "must be above 1 with yarn, found " + std::to_string(theta));

  const auto dimension_of = [&](double rotations) {
    return dim * std::log(original / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
  };
  double low = dimension_of(beta_fast);
  double high = dimension_of(beta_slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = rope.inverse_frequencies[i];
    frequency = frequency / factor * ramp + frequency * (1.0 - ramp);
  }

  const auto magnitude = [factor](double scale) {
    return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  if (attention_factor) {
    rope.attention_factor = *attention_factor;
  } else if (mscale.value_or(0.0) != 0.0 && mscale_all_dim.value_or(0.0) != 0.0) {
    rope.attention_factor = magnitude(*mscale) / magnitude(*mscale_all_dim);
  } else {
    rope.attention_factor = magnitude(1.0);
  }
}

// Wavelengths above original / low_freq_factor are stretched by the factor, those below
// original / high_freq_factor stay, and in between it is interpolated.
void scale_llama3(ConfigReader& reader, RopeSpec& rope) {
  const double original = required_positive(reader, "original_max_position_embeddings", kMaxSequenceLength);
  const double factor = required_positive(reader, "factor", kLargestFactor);
  const double low = required_positive(reader, "low_freq_factor", kLargestFactor);
  const double high = required_positive(reader, "high_freq_factor", kLargestFactor);
  if (high <= low) return reader.wrong("high_freq_factor", "must be above low_freq_factor");
  for (double& frequency : rope.inverse_frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < original / high) continue;
    if (wavelength > original / low) {
      frequency /= factor;
      continue;
    }
    const double smooth = (original / wavelength - low) / (high - low);
    frequency = (1.0 - smooth) * frequency / factor + smooth * frequency;
  }
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, std::vector<std::string>& problems, std::uint32_t head_dim,
                   std::uint32_t max_position_embeddings) {
  RopeSpec rope;
  rope.rotary_dim = head_dim;
  if (head_dim % 2 != 0) {
    config.wrong("head_dim", "must be even for rope, found " + std::to_string(head_dim));
    return rope;
  }
  const nlohmann::json* parameters = config.find("rope_parameters");
  const nlohmann::json* scaling = config.find("rope_scaling");
  if (parameters != nullptr && scaling != nullptr) {
    config.problem("rope_parameters and rope_scaling are both there; one of them must go");
  }
  const std::string_view key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json* object = parameters != nullptr ? parameters : scaling;
  if (object != nullptr && !object->is_object()) {
    config.wrong(key, "must be an object, found " + std::string(json_kind(*object)));
    return rope;
  }
  ConfigReader reader(object == nullptr ? none : *object, std::string(key) + ".", problems);

  ConfigReader& theta_reader = reader.find("rope_theta") != nullptr ? reader : config;
  config.find("rope_theta");  // understood wherever it lies
  const double theta = required_positive(theta_reader, "rope_theta", kLargestTheta);
  // None of the families turns only a part of a head.
  if (const double part = reader.number("partial_rotary_factor").value_or(1.0); part != 1.0) {
    reader.wrong("partial_rotary_factor", "must be 1 in this family, found " + std::to_string(part));
  }
  rope.inverse_frequencies = plain_frequencies(theta, rope.rotary_dim);

  // Old files say `type`, new ones `rope_type`, some both.
  const std::optional<std::string> old_type = reader.string("type");
  const std::string type = reader.string("rope_type").value_or(old_type.value_or("default"));
  if (type == "yarn") {
    scale_yarn(reader, theta, rope.rotary_dim, max_position_embeddings, rope);
  } else if (type == "llama3") {
    scale_llama3(reader, rope);
  } else if (type != "default") {
    reader.wrong("rope_type", "\"" + type + "\" is not supported; supported are default, llama3, yarn");
    return rope;  // its other keys are of no interest then
  }
  reader.refuse_unread();
  return rope;
}

}  // namespace colibri
