// Peaks of one core: integer and float products out of registers, and the rate of reading memory. A product
// counts as two operations, as in the benches of kernels.
#include "bench/machine_peaks.hpp"

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace colibri {
namespace {

constexpr std::size_t kReadBytes = std::size_t{512} << 20;  // far beyond any cache

// Reads all words once. Two places at a time keep more lines in flight than one; eight sums, so that no
// addition waits for another.
void read_once(const std::vector<std::uint64_t>& words) {
  std::uint64_t sums[8] = {};
  const std::size_t half = words.size() / 2;
  for (std::size_t i = 0; i < half; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane] + words[half + i + lane];
  }
  benchmark::DoNotOptimize(sums);
}

#if defined(__x86_64__)

// Enough independent sums to hide the latency of an instruction, few enough for the registers.
constexpr int kSums = 12;
constexpr int kRounds = 1000;

// Operations of one call of the functions below: products of two in each of `lanes`.
constexpr double operations(int lanes) { return 2.0 * lanes * kSums * kRounds; }

[[gnu::target("avx512f,avx512vnni")]] void dpbusd_512() {
  __m512i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
      asm volatile("" : "+v"(sums[i]));  // the compiler must not know what it is
    }
  }
}

[[gnu::target("avx512f")]] void fma_512() {
  __m512 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(0.5F), b = _mm512_set1_ps(0.25F);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_fmadd_ps(a, b, sums[i]);
      asm volatile("" : "+v"(sums[i]));
    }
  }
}

[[gnu::target("avx2,fma")]] void fma_256() {
  __m256 sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.5F), b = _mm256_set1_ps(0.25F);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
      asm volatile("" : "+x"(sums[i]));
    }
  }
}

// As the int8 kernel has it: both sides in 16 bit.
[[gnu::target("avx2")]] void maddwd_256() {
  __m256i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi16(3);
  const __m256i b = _mm256_set1_epi16(5);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      asm volatile("" : "+x"(a));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(a, b));
      asm volatile("" : "+x"(sums[i]));
    }
  }
}

// As the int4 kernel has it: bytes, and sums in 16 bit.
[[gnu::target("avx2")]] void maddubsw_256() {
  __m256i sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      asm volatile("" : "+x"(a));
      sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b));
      asm volatile("" : "+x"(sums[i]));
    }
  }
}

#endif

struct Peak {
  std::string_view name;
  double work;  // of one call
  bool bytes;   // work is bytes, not operations
  std::function<void()> call;
};

std::vector<Peak> peaks_of_this_processor() {
  std::vector<Peak> peaks;
  // The memory is made by the first call, and lives as long as the peak.
  auto words = std::make_shared<std::vector<std::uint64_t>>();
  peaks.push_back({"peak_read_memory", double{kReadBytes}, true, [words] {
                     if (words->empty()) words->assign(kReadBytes / sizeof(std::uint64_t), 1);
                     read_once(*words);
                   }});
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
    peaks.push_back({"peak_vpdpbusd/avx512", operations(64), false, dpbusd_512});
    peaks.push_back({"peak_fma/avx512", operations(16), false, fma_512});
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    peaks.push_back({"peak_vpmaddwd/avx2", operations(16), false, maddwd_256});
    peaks.push_back({"peak_vpmaddubsw/avx2", operations(32), false, maddubsw_256});
    peaks.push_back({"peak_fma/avx2", operations(8), false, fma_256});
  }
#endif
  return peaks;
}

// Calls a second, over at least 20 ms. The clock is looked at seldom: that takes as long as part of a call.
double calls_per_second(const std::function<void()>& call) {
  constexpr double kSeconds = 0.02;
  for (std::uint64_t calls = 1;; calls *= 2) {
    const double begin = thread_seconds();
    for (std::uint64_t i = 0; i < calls; ++i) call();
    const double passed = thread_seconds() - begin;
    if (passed >= kSeconds) return static_cast<double>(calls) / passed;
  }
}

}  // namespace

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<MachinePeak> measure_machine_peaks() {
  constexpr int kRuns = 5;
  std::vector<MachinePeak> measured;
  for (const Peak& peak : peaks_of_this_processor()) {
    peak.call();  // memory is touched, the clock rises
    double best = 0;
    for (int run = 0; run < kRuns; ++run) best = std::max(best, calls_per_second(peak.call));
    measured.push_back({peak.name, best * peak.work});
  }
  return measured;
}

void register_machine_peaks() {
  for (const Peak& peak : peaks_of_this_processor()) {
    benchmark::RegisterBenchmark(std::string(peak.name).c_str(), [peak](benchmark::State& state) {
      for (auto _ : state) peak.call();
      const auto work = static_cast<std::int64_t>(peak.work) * state.iterations();
      peak.bytes ? state.SetBytesProcessed(work) : state.SetItemsProcessed(work);
    });
  }
}

}  // namespace colibri
