// The AVX2 row of the kernel table. Compiled without instruction-set flags, because it is
// asked whether the processor has them.
#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/scalar/scalar_kernels.hpp"

namespace colibri::kernels::avx2 {
namespace {

// AVX2 and fused multiply-add, and an operating system that saves the registers.
bool processor_supports() noexcept { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

constinit const KernelTable kTable = {
    .name = "avx2",
    .supported = processor_supports,
    .matmul = {matmul_f32, matmul_bf16, matmul_int8, matmul_int4},
    .quantize_rows = quantize_rows,
    .rms_norm = rms_norm,
    .silu_multiply = silu_multiply,
    .rope = rope,
    .kv_store = scalar::kv_store,
    .attention = attention,
    .scale_add = scale_add,
    .add = add,
    .dot = dot,
    .max_value = max_value,
    .sum_exp = sum_exp,
    .exp_shifted = exp_shifted,
    .exp = exp,
};

}  // namespace colibri::kernels::avx2
