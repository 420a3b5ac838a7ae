// Built with AVX2; called only where it is available.
#include <immintrin.h>

#include "compute/kernels/peak_internal.h"

namespace weft::peak {
namespace {

constexpr int kInt8Chains = 4;  // chains of additions, which take a cycle
constexpr int kFloatChains = 8;

int32_t RunInt8(int64_t n, int32_t seed) {
  __m256i sums[kInt8Chains], a[2], b[2];
  for (int i = 0; i < kInt8Chains; ++i) sums[i] = _mm256_set1_epi32(seed ^ i);
  for (int i = 0; i < 2; ++i) {
    a[i] = _mm256_set1_epi8(static_cast<char>((seed & 63) + i));
    b[i] = _mm256_set1_epi8(static_cast<char>(((seed ^ 5) & 63) + i));
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t round = 0; round < n; ++round) {
    // As if they changed, or the compiler takes the products out of the loop.
    asm("" : "+x"(b[0]), "+x"(b[1]));
#pragma GCC unroll 4
    for (int i = 0; i < kInt8Chains; ++i) {
      const __m256i pairs = _mm256_maddubs_epi16(a[i / 2], b[i % 2]);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  __m256i all = sums[0];
  for (int i = 1; i < kInt8Chains; ++i) all = _mm256_xor_si256(all, sums[i]);
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  return lanes[0] ^ lanes[5];
}

int32_t RunFloats(int64_t n, int32_t seed) {
  __m256 sums[kFloatChains];
  for (auto& sum : sums) sum = _mm256_set1_ps(static_cast<float>(seed & 63));
  const __m256 a = _mm256_set1_ps(static_cast<float>(seed & 7) / 8);
  const __m256 b = _mm256_set1_ps(static_cast<float>(seed & 31));
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 8
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, a, b);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kFloatChains; ++i) all = _mm256_xor_ps(all, sums[i]);
  return _mm256_movemask_ps(all);
}

}  // namespace

Bursts Avx2Bursts() {
  return {{RunInt8, int64_t{kInt8Chains} * 32}, {RunFloats, int64_t{kFloatChains} * 8}};
}

}  // namespace weft::peak
