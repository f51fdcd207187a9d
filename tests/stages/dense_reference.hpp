// A transformer in double precision, written from the formulas: whole sequences, full
// score matrices, no pages, no tiles. MoE layers add nothing after their attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "dense_model.hpp"

namespace colibri::testing {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

inline Row reference_norm(const Row& x, const Tensor& weight, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y(x.size());
  // A weight shorter than the row repeats: the norm of one head at a time is done by the caller.
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse * static_cast<double>(weight.values[i]);
  return y;
}

inline Row reference_linear(const Row& x, const Tensor& weight, const Tensor* bias) {
  Row y(weight.rows);
  for (std::uint32_t n = 0; n < weight.rows; ++n) {
    double sum = bias == nullptr ? 0.0 : static_cast<double>(bias->values[n]);
    for (std::uint32_t k = 0; k < weight.columns; ++k) {
      sum += x[k] * static_cast<double>(weight.values[std::size_t{n} * weight.columns + k]);
    }
    y[n] = sum;
  }
  return y;
}

inline void reference_rope(double* head, const RopeSpec& rope, std::uint32_t position) {
  const std::uint32_t half = rope.rotary_dim / 2;
  for (std::uint32_t i = 0; i < half; ++i) {
    const double angle = position * rope.inverse_frequencies[i];
    const double c = std::cos(angle) * rope.attention_factor, s = std::sin(angle) * rope.attention_factor;
    const bool halves = rope.pairing == kernels::RopePairing::halves;
    double& a = head[halves ? i : 2 * i];
    double& b = head[halves ? i + half : 2 * i + 1];
    const double old_a = a;
    a = a * c - b * s;
    b = b * c + old_a * s;
  }
}

struct ReferenceResult {
  std::vector<Rows> hidden;  // [layers + 1][positions][hidden]
  Rows final_states;         // after the final norm
  Rows logits;
};

inline Rows reference_attention(const DenseModel& model, std::uint32_t layer, const Rows& x) {
  const ModelSpec& spec = model.spec();
  const AttentionSpec& a = spec.attention;
  const std::string p = "layers." + std::to_string(layer) + ".";
  const std::uint32_t d = a.head_dim, window = spec.layers[layer].sliding_window;
  Rows qs, ks, vs;
  for (std::uint32_t t = 0; t < x.size(); ++t) {
    const Row qkv = reference_linear(
        reference_norm(x[t], model.tensor(p + "attention_norm.weight"), spec.rms_norm_eps),
        model.tensor(p + "qkv.weight"), a.qkv_bias ? &model.tensor(p + "qkv.bias") : nullptr);
    Row q(qkv.begin(), qkv.begin() + a.query_size());
    Row k(qkv.begin() + a.query_size(), qkv.begin() + a.query_size() + a.kv_size());
    Row v(qkv.begin() + a.query_size() + a.kv_size(), qkv.end());
    if (a.qk_norm == QkNorm::full_width) {
      q = reference_norm(q, model.tensor(p + "q_norm.weight"), spec.rms_norm_eps);
      k = reference_norm(k, model.tensor(p + "k_norm.weight"), spec.rms_norm_eps);
    }
    auto each_head = [&](Row& row, const char* norm) {
      for (std::size_t begin = 0; begin < row.size(); begin += d) {
        if (a.qk_norm != QkNorm::per_head) continue;
        const Row head = reference_norm(Row(row.begin() + begin, row.begin() + begin + d),
                                        model.tensor(p + norm), spec.rms_norm_eps);
        std::copy(head.begin(), head.end(), row.begin() + begin);
      }
    };
    each_head(q, "q_norm.weight");
    each_head(k, "k_norm.weight");
    if (a.clip_qkv > 0) {
      for (Row* row : {&q, &k, &v}) {
        for (double& value : *row) value = std::clamp<double>(value, -a.clip_qkv, a.clip_qkv);
      }
    }
    for (std::size_t h = 0; h < a.num_heads; ++h) reference_rope(q.data() + h * d, spec.rope, t);
    for (std::size_t h = 0; h < a.num_kv_heads; ++h) reference_rope(k.data() + h * d, spec.rope, t);
    qs.push_back(q), ks.push_back(k), vs.push_back(v);
  }
  Rows out;
  for (std::uint32_t t = 0; t < x.size(); ++t) {
    Row attended(a.query_size(), 0.0);
    for (std::uint32_t h = 0; h < a.num_heads; ++h) {
      const std::uint32_t kv = h / (a.num_heads / a.num_kv_heads);
      const std::uint32_t first = window == 0 || t + 1 < window ? 0 : t + 1 - window;
      std::vector<double> scores;
      for (std::uint32_t s = first; s <= t; ++s) {
        double score = 0;
        for (std::uint32_t i = 0; i < d; ++i) score += qs[t][h * d + i] * ks[s][kv * d + i];
        scores.push_back(score * static_cast<double>(a.scale));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (std::uint32_t s = first; s <= t; ++s) {
        for (std::uint32_t i = 0; i < d; ++i)
          attended[h * d + i] += scores[s - first] / sum * vs[s][kv * d + i];
      }
    }
    Row projected = reference_linear(attended, model.tensor(p + "attention_output.weight"),
                                     a.output_bias ? &model.tensor(p + "attention_output.bias") : nullptr);
    for (std::size_t i = 0; i < projected.size(); ++i) projected[i] += x[t][i];
    out.push_back(projected);
  }
  return out;
}

inline ReferenceResult reference_forward(const DenseModel& model, const std::vector<std::int32_t>& tokens) {
  const ModelSpec& spec = model.spec();
  ReferenceResult result;
  Rows x;
  for (const std::int32_t token : tokens) {
    const float* row = model.tensor("embedding.weight").values.data() + std::size_t(token) * spec.hidden_size;
    x.emplace_back(row, row + spec.hidden_size);
  }
  result.hidden.push_back(x);
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    x = reference_attention(model, layer, x);
    if (!spec.layers[layer].moe) {
      const std::string p = "layers." + std::to_string(layer) + ".";
      for (Row& row : x) {
        const Row normed = reference_norm(row, model.tensor(p + "ffn_norm.weight"), spec.rms_norm_eps);
        Row gate = reference_linear(normed, model.tensor(p + "ffn.gate.weight"), nullptr);
        const Row up = reference_linear(normed, model.tensor(p + "ffn.up.weight"), nullptr);
        for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        const Row down = reference_linear(gate, model.tensor(p + "ffn.down.weight"), nullptr);
        for (std::size_t i = 0; i < row.size(); ++i) row[i] += down[i];
      }
    }
    result.hidden.push_back(x);
  }
  for (const Row& row : x) {
    result.final_states.push_back(reference_norm(row, model.tensor("final_norm.weight"), spec.rms_norm_eps));
    result.logits.push_back(
        reference_linear(result.final_states.back(),
                         model.tensor(spec.tied_head ? "embedding.weight" : "head.weight"), nullptr));
  }
  return result;
}

inline double reference_logprob(const Row& logits, std::int32_t token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  return logits[static_cast<std::size_t>(token)] - max - std::log(sum);
}

}  // namespace colibri::testing
