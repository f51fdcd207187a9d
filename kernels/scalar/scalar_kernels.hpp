// The reference variant: plain loops in the order that kernel_table.hpp fixes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.hpp"

namespace colibri::kernels::scalar {

void matmul_f32(const MatmulArgs& args) noexcept;
void matmul_bf16(const MatmulArgs& args) noexcept;
void matmul_int8(const MatmulArgs& args) noexcept;
void matmul_int4(const MatmulArgs& args) noexcept;
void quantize_rows(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                   const QuantizedRows& out, std::uint32_t out_row) noexcept;

void rms_norm(const float* x, const float* weight, float eps, std::uint32_t n, float* y) noexcept;
void silu_multiply(const float* gate, const float* up, std::size_t n, float* out) noexcept;
void rope(float* head, const float* cosines, const float* sines, std::uint32_t half,
          RopePairing pairing) noexcept;
void scale_add(float weight, const float* x, std::size_t n, float* out) noexcept;
void add(const float* x, std::size_t n, float* out) noexcept;
float dot(const float* x, const float* y, std::size_t n) noexcept;
float max_value(const float* x, std::size_t n) noexcept;
float sum_exp(const float* x, float max, std::size_t n) noexcept;
void exp_shifted(const float* x, float max, std::size_t n, float* out) noexcept;
float exp(float x) noexcept;

// Also what the other variants use: it only rounds and scatters one position.
void kv_store(const KvStoreArgs& args) noexcept;
void attention(const AttentionArgs& args) noexcept;

extern const KernelTable kTable;

}  // namespace colibri::kernels::scalar
