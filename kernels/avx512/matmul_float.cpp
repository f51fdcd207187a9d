// AVX-512 matrix products with f32 and bf16 weights.
#include "kernels/vector/matmul_float.hpp"

#include "kernels/avx512/avx512_kernels.hpp"
#include "kernels/avx512/lanes.hpp"

namespace colibri::kernels::avx512 {

void matmul_f32(const MatmulArgs& args) noexcept { RowTiles<FloatTile<Lanes, float>>::run(args); }

void matmul_bf16(const MatmulArgs& args) noexcept { RowTiles<FloatTile<Lanes, std::uint16_t>>::run(args); }

}  // namespace colibri::kernels::avx512
