// The scalar row of the kernel table.
#include "kernels/scalar/scalar_kernels.hpp"

namespace colibri::kernels::scalar {
namespace {

bool always_supported() noexcept { return true; }

}  // namespace

constinit const KernelTable kTable = {
    .name = "scalar",
    .supported = always_supported,
    .matmul = {matmul_f32, matmul_bf16, matmul_int8, matmul_int4},
    .quantize_rows = quantize_rows,
    .rms_norm = rms_norm,
    .silu_multiply = silu_multiply,
    .rope = rope,
    .kv_store = kv_store,
    .attention = attention,
    .scale_add = scale_add,
    .add = add,
    .dot = dot,
    .max_value = max_value,
    .sum_exp = sum_exp,
    .exp_shifted = exp_shifted,
    .exp = exp,
};

}  // namespace colibri::kernels::scalar
