// Built with AVX-512 and VNNI; called only where they are available.
#include <immintrin.h>

#include "compute/kernels/peak_internal.h"

namespace weft::peak {
namespace {

constexpr int kChains = 16;  // covers the instruction's latency

int32_t RunInt8(int64_t n, int32_t seed) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_epi32(seed);
  const __m512i a = _mm512_set1_epi8(static_cast<char>(seed));
  const __m512i b = _mm512_set1_epi8(static_cast<char>(seed ^ 5));
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_xor_si512(all, sums[i]);
  alignas(64) int32_t lanes[16];
  _mm512_store_si512(lanes, all);
  return lanes[0] ^ lanes[7];
}

int32_t RunFloats(int64_t n, int32_t seed) {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_set1_ps(static_cast<float>(seed & 63));
  const __m512 a = _mm512_set1_ps(static_cast<float>(seed & 7) / 8);
  const __m512 b = _mm512_set1_ps(static_cast<float>(seed & 31));
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, a, b);
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  return static_cast<int32_t>(_mm512_reduce_add_ps(all));
}

}  // namespace

Bursts Avx512Bursts() {
  return {{RunInt8, int64_t{kChains} * 64}, {RunFloats, int64_t{kChains} * 16}};
}

}  // namespace weft::peak
