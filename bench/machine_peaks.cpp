// Peaks of one core: integer dot products out of registers, one bench an instruction, and the rate of reading
// memory. A product counts as two operations, as in the benches of kernels.
#include "bench/machine_peaks.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace colibri {
namespace {

constexpr std::size_t kReadBytes = std::size_t{512} << 20;  // far beyond any cache

void read_memory(benchmark::State& state) {
  const std::vector<std::uint64_t> words(kReadBytes / sizeof(std::uint64_t), 1);
  for (auto _ : state) {
    // Two places at a time keep more lines in flight than one; eight sums, so that no addition waits for
    // another.
    std::uint64_t sums[8] = {};
    const std::size_t half = words.size() / 2;
    for (std::size_t i = 0; i < half; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane] + words[half + i + lane];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kReadBytes));
}

#if defined(__x86_64__)

// Enough independent sums to hide the latency of an instruction, few enough for the registers.
constexpr int kSums = 12;
constexpr int kRounds = 1000;

void count(benchmark::State& state, int products) {
  state.SetItemsProcessed(state.iterations() * std::int64_t{2} * products * kSums * kRounds);
}

[[gnu::target("avx512f,avx512vnni")]] void dpbusd_512(benchmark::State& state) {
  __m512i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) {
        sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
        asm volatile("" : "+v"(sums[i]));  // the compiler must not know what it is
      }
    }
  }
  count(state, 64);
}

// As the int8 kernel has it: both sides in 16 bit.
[[gnu::target("avx2")]] void maddwd_256(benchmark::State& state) {
  __m256i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi16(3);
  const __m256i b = _mm256_set1_epi16(5);
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) {
        asm volatile("" : "+x"(a));
        sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(a, b));
        asm volatile("" : "+x"(sums[i]));
      }
    }
  }
  count(state, 16);
}

// As the int4 kernel has it: bytes, and sums in 16 bit.
[[gnu::target("avx2")]] void maddubsw_256(benchmark::State& state) {
  __m256i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) {
        asm volatile("" : "+x"(a));
        sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b));
        asm volatile("" : "+x"(sums[i]));
      }
    }
  }
  count(state, 32);
}

#endif

}  // namespace

void register_machine_peaks() {
  benchmark::RegisterBenchmark("peak_read_memory", read_memory);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
    benchmark::RegisterBenchmark("peak_vpdpbusd/avx512", dpbusd_512);
  }
  if (__builtin_cpu_supports("avx2")) {
    benchmark::RegisterBenchmark("peak_vpmaddwd/avx2", maddwd_256);
    benchmark::RegisterBenchmark("peak_vpmaddubsw/avx2", maddubsw_256);
  }
#endif
}

}  // namespace colibri
