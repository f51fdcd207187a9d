// AVX-512 attention over pages of f32 or bf16 keys and values.
#include "kernels/vector/attention.hpp"

#include "kernels/avx512/avx512_kernels.hpp"
#include "kernels/avx512/lanes.hpp"

namespace colibri::kernels::avx512 {

void attention(const AttentionArgs& args) noexcept {
  args.format == KvFormat::f32 ? Attention<Lanes, float>::run(args)
                               : Attention<Lanes, std::uint16_t>::run(args);
}

}  // namespace colibri::kernels::avx512
