// Built with AVX2; called only where it is available.
#include <immintrin.h>

#include "kernels/peak_internal.h"

namespace weft::peak {
namespace {

constexpr int kChains = 8;

int32_t RunInt8(int64_t n, int32_t seed) {
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_epi32(seed);
  __m256i a = _mm256_set1_epi8(static_cast<char>(seed & 63));
  const __m256i b = _mm256_set1_epi8(static_cast<char>((seed ^ 5) & 63));
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t round = 0; round < n; ++round) {
    // Products that differ by round, or the compiler takes them out of the loop.
    a = _mm256_xor_si256(a, b);
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      const __m256i left = _mm256_or_si256(a, _mm256_set1_epi8(static_cast<char>(i)));
      const __m256i pairs = _mm256_maddubs_epi16(left, b);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  __m256i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_xor_si256(all, sums[i]);
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  return lanes[0] ^ lanes[5];
}

int32_t RunFloats(int64_t n, int32_t seed) {
  __m256 sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_ps(static_cast<float>(seed & 63));
  const __m256 a = _mm256_set1_ps(static_cast<float>(seed & 7) / 8);
  const __m256 b = _mm256_set1_ps(static_cast<float>(seed & 31));
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 8
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_xor_ps(all, sums[i]);
  return _mm256_movemask_ps(all);
}

}  // namespace

Bursts Avx2Bursts() {
  return {{RunInt8, int64_t{kChains} * 32}, {RunFloats, int64_t{kChains} * 8}};
}

}  // namespace weft::peak
