// Built with AVX2 and AVX-VNNI; called only where they are available.
#include <immintrin.h>

#include "compute/kernels/dot_products_avxvnni.h"
#include "compute/kernels/peak_internal.h"

namespace weft::peak {
namespace {

constexpr int kChains = 12;  // covers the instruction's latency

int32_t RunInt8(int64_t n, int32_t seed) {
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_set1_epi32(seed);
  const __m256i a = _mm256_set1_epi8(static_cast<char>(seed));
  __m256i b = _mm256_set1_epi8(static_cast<char>(seed ^ 5));
  for (int64_t round = 0; round < n; ++round) {
    asm("" : "+x"(b));  // as if it changed, or products that stand in leave the loop
#pragma GCC unroll 12
    for (auto& sum : sums) AddByteProducts(a, b, &sum);
  }
  __m256i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_xor_si256(all, sums[i]);
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  return lanes[0] ^ lanes[5];
}

}  // namespace

Bursts AvxVnniBursts() { return {{RunInt8, int64_t{kChains} * 32}, Avx2Bursts().floats}; }

}  // namespace weft::peak
