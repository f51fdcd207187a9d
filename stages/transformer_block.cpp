// One layer's attention and dense FFN. Each phase is a pass over rows or a matrix product;
// a phase starts when the one before is done for all rows of the wave.
#include "stages/transformer_block.hpp"

#include <algorithm>

#include "kernels/rope_angles.hpp"
#include "stages/attention_cut.hpp"

namespace colibri {
namespace {

// Costs in multiply-adds, for cutting tiles.
constexpr std::uint64_t kAngleCost = 40;   // a cosine and a sine in double precision
constexpr std::uint64_t kElementCost = 4;  // norm, bias, rotation or quantisation of one value

std::uint32_t widest_dense_intermediate(const ModelSpec& spec) noexcept {
  std::uint32_t widest = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.moe) widest = std::max(widest, layer.dense_intermediate_size);
  }
  return widest;
}

std::uint32_t qkv_size(const AttentionSpec& attention) noexcept {
  return attention.query_size() + 2 * attention.kv_size();
}

}  // namespace

TransformerBlock::Scratch TransformerBlock::lay_out(MemoryCursor& cursor, const PlanInputs& inputs) {
  const ModelSpec& spec = *inputs.spec;
  const std::uint64_t rows = inputs.wave_rows;
  const std::uint32_t intermediate = widest_dense_intermediate(spec);
  const std::uint64_t angles = std::uint64_t{inputs.in_flight} * inputs.max_rows * (spec.rope.rotary_dim / 2);
  Scratch scratch;
  scratch.normed = cursor.take<float>(rows * spec.hidden_size);
  scratch.qkv = cursor.take<float>(rows * qkv_size(spec.attention));
  scratch.attended = cursor.take<float>(rows * spec.attention.query_size());
  scratch.gate = cursor.take<float>(rows * intermediate);
  scratch.up = cursor.take<float>(rows * intermediate);
  if (kernels::has_integer_weights(spec.weight_dtype)) {
    scratch.quantized =
        cursor.take_quantized(rows, std::max({spec.hidden_size, spec.attention.query_size(), intermediate}));
  }
  scratch.cosines = cursor.take<float>(angles);
  scratch.sines = cursor.take<float>(angles);
  return scratch;
}

std::uint64_t TransformerBlock::memory_bytes(const PlanInputs& inputs) {
  MemoryCursor cursor;
  lay_out(cursor, inputs);
  return cursor.used();
}

TransformerBlock::TransformerBlock(StageContext& context)
    : context_(context),
      services_(context.services()),
      spec_(*services_.plan.spec),
      kernels_(*services_.kernels) {
  MemoryCursor cursor(context.memory());
  scratch_ = lay_out(cursor, services_.plan);
}

void TransformerBlock::prepare(const Wave& wave) {
  const std::uint32_t half = spec_.rope.rotary_dim / 2;
  for_ranges(context_, wave.rows(), kAngleCost * half, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) {
      const std::size_t at = angle_offset(wave, row);
      kernels::rope_angles(spec_.rope.inverse_frequencies.data(), half,
                           wave.step->positions[wave.row_begin + row], spec_.rope.attention_factor,
                           scratch_.cosines + at, scratch_.sines + at);
    }
  });
}

std::uint64_t TransformerBlock::attention(const Wave& wave, std::uint32_t layer) {
  const DenseLayer& weights = services_.dense->layers[layer];
  const std::uint32_t width = qkv_size(spec_.attention);
  const RowsView normed = normalize(wave, weights.attention_norm, weights.qkv);
  project(context_, kernels_, weights.qkv, normed, wave.rows(), scratch_.qkv, width);
  for_ranges(context_, wave.rows(), kElementCost * width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; ++row) finish_qkv_row(wave, row, layer);
  });
  const std::uint64_t keys = attend_rows(wave, layer);
  const RowsView attended = view(scratch_.attended, wave.rows(), weights.attention_output);
  project(context_, kernels_, weights.attention_output, attended, wave.rows(), scratch_.normed,
          spec_.hidden_size);
  add_to_residual(wave, scratch_.normed, weights.attention_output_bias);
  return keys;
}

void TransformerBlock::dense_ffn(const Wave& wave, std::uint32_t layer) {
  const DenseLayer& weights = services_.dense->layers[layer];
  const std::uint32_t width = weights.ffn.gate.outputs;
  const RowsView normed = normalize(wave, weights.ffn_norm, weights.ffn.gate);
  project(context_, kernels_, weights.ffn.gate, normed, wave.rows(), scratch_.gate, width);
  project(context_, kernels_, weights.ffn.up, normed, wave.rows(), scratch_.up, width);
  for_ranges(context_, wave.rows(), kElementCost * width, [&](std::uint32_t begin, std::uint32_t end) {
    const std::size_t first = std::size_t{begin} * width;
    kernels_.silu_multiply(scratch_.gate + first, scratch_.up + first, std::size_t{end - begin} * width,
                           scratch_.gate + first);
  });
  const RowsView activated = view(scratch_.gate, wave.rows(), weights.ffn.down);
  project(context_, kernels_, weights.ffn.down, activated, wave.rows(), scratch_.normed, spec_.hidden_size);
  add_to_residual(wave, scratch_.normed, nullptr);
}

RowsView TransformerBlock::normalize(const Wave& wave, const float* norm,
                                     const kernels::PackedMatrix& weights) {
  const std::size_t hidden = spec_.hidden_size;
  for_ranges(context_, wave.rows(), kElementCost * hidden, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      kernels_.rms_norm(wave.step->residual + (wave.row_begin + row) * hidden, norm, spec_.rms_norm_eps,
                        spec_.hidden_size, scratch_.normed + row * hidden);
    }
  });
  return view(scratch_.normed, wave.rows(), weights);
}

RowsView TransformerBlock::view(float* x, std::uint32_t rows, const kernels::PackedMatrix& weights) {
  const std::uint32_t inputs = weights.inputs;
  RowsView view{.x = x, .stride = inputs};
  if (!kernels::has_integer_weights(weights.format)) return view;
  view.quantized = kernels::quantized_rows_at(scratch_.quantized, services_.plan.wave_rows, inputs);
  for_ranges(context_, rows, kElementCost * inputs, [&](std::uint32_t begin, std::uint32_t end) {
    kernels_.quantize_rows(x + std::size_t{begin} * inputs, inputs, end - begin, inputs, view.quantized,
                           begin);
  });
  return view;
}

void TransformerBlock::finish_qkv_row(const Wave& wave, std::uint32_t row_in_wave, std::uint32_t layer) {
  const AttentionSpec& attention = spec_.attention;
  const DenseLayer& weights = services_.dense->layers[layer];
  const std::uint32_t width = qkv_size(attention);
  const std::uint32_t head_dim = attention.head_dim;
  float* query = scratch_.qkv + std::size_t{row_in_wave} * width;
  float* key = query + attention.query_size();
  float* value = key + attention.kv_size();

  if (weights.qkv_bias != nullptr) kernels_.add(weights.qkv_bias, width, query);
  if (attention.qk_norm == QkNorm::full_width) {
    kernels_.rms_norm(query, weights.q_norm, spec_.rms_norm_eps, attention.query_size(), query);
    kernels_.rms_norm(key, weights.k_norm, spec_.rms_norm_eps, attention.kv_size(), key);
  } else if (attention.qk_norm == QkNorm::per_head) {
    for (float* head = query; head < key; head += head_dim) {
      kernels_.rms_norm(head, weights.q_norm, spec_.rms_norm_eps, head_dim, head);
    }
    for (float* head = key; head < value; head += head_dim) {
      kernels_.rms_norm(head, weights.k_norm, spec_.rms_norm_eps, head_dim, head);
    }
  }
  if (attention.clip_qkv > 0.0F) {
    for (float* x = query; x < query + width; ++x)
      *x = std::clamp(*x, -attention.clip_qkv, attention.clip_qkv);
  }
  const std::size_t angles = angle_offset(wave, row_in_wave);
  for (float* head = query; head < value; head += head_dim) {
    kernels_.rope(head, scratch_.cosines + angles, scratch_.sines + angles, spec_.rope.rotary_dim / 2,
                  spec_.rope.pairing);
  }

  const std::uint32_t row = wave.row_begin + row_in_wave;
  const std::uint32_t position = wave.step->positions[row];
  kernels::KvStoreArgs store;
  store.format = services_.kv.format;
  store.kv_heads = attention.num_kv_heads;
  store.head_dim = head_dim;
  const Sequence& sequence = *wave.step->sequences[row];
  store.page = services_.kv.layer_base(sequence, layer) +
               sequence.kv_blocks[position / kernels::kKvPagePositions] * services_.kv.block_stride;
  store.slot = position % kernels::kKvPagePositions;
  store.key = key;
  store.value = value;
  kernels_.kv_store(store);
}

std::uint64_t TransformerBlock::attend_rows(const Wave& wave, std::uint32_t layer) {
  const AttentionSpec& attention = spec_.attention;
  const std::uint32_t window = spec_.layers[layer].sliding_window;
  const AttentionCut cut(wave, attention.num_kv_heads, window);
  const auto run_piece = [&](const AttentionPiece& piece) {
    const Sequence& sequence = *wave.step->sequences[piece.row_begin];
    const std::size_t row_in_wave = piece.row_begin - wave.row_begin;
    kernels::AttentionArgs args;
    args.format = services_.kv.format;
    args.heads = attention.num_heads;
    args.kv_heads = attention.num_kv_heads;
    args.head_dim = attention.head_dim;
    args.scale = attention.scale;
    args.window = window;
    args.position = wave.step->positions[piece.row_begin];
    args.rows = piece.row_end - piece.row_begin;
    args.kv_base = services_.kv.layer_base(sequence, layer);
    args.page_stride = services_.kv.block_stride;
    args.pages = sequence.kv_blocks.data();
    args.query_stride = qkv_size(attention);
    args.query = scratch_.qkv + row_in_wave * args.query_stride;
    args.out_stride = attention.query_size();
    args.out = scratch_.attended + row_in_wave * args.out_stride;
    args.kv_head_begin = piece.kv_head_begin;
    args.kv_head_end = piece.kv_head_end;
    kernels_.attention(args);
  };
  // Scores and weighted sum of one kv head of an average row.
  const std::size_t items = std::size_t{wave.rows()} * attention.num_kv_heads;
  const std::size_t tiles =
      tiles_for(items, 2 * cut.keys() * attention.query_size() / items, context_.workers());
  if (tiles <= 1) {
    cut.for_pieces(1, 0, run_piece);
  } else {
    context_.parallel(tiles, [&](std::size_t tile) { cut.for_pieces(tiles, tile, run_piece); });
  }
  return cut.keys();
}

void TransformerBlock::add_to_residual(const Wave& wave, const float* projection, const float* bias) {
  const std::size_t hidden = spec_.hidden_size;
  for_ranges(context_, wave.rows(), kElementCost * hidden, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      float* residual = wave.step->residual + (wave.row_begin + row) * hidden;
      kernels_.add(projection + row * hidden, hidden, residual);
      if (bias != nullptr) kernels_.add(bias, hidden, residual);
    }
  });
}

}  // namespace colibri
