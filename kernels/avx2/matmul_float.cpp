// AVX2 matrix products with f32 and bf16 weights.
#include "kernels/vector/matmul_float.hpp"

#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/avx2/lanes.hpp"

namespace colibri::kernels::avx2 {

void matmul_f32(const MatmulArgs& args) noexcept { RowTiles<FloatTile<Lanes, float>>::run(args); }

void matmul_bf16(const MatmulArgs& args) noexcept { RowTiles<FloatTile<Lanes, std::uint16_t>>::run(args); }

}  // namespace colibri::kernels::avx2
