// Built with products of matrices of bytes; called only where they are available.
#include <arm_neon.h>

#include "compute/kernels/peak_internal.h"

namespace weft::peak {
namespace {

constexpr int kChains = 16;  // covers the instruction's latency on several pipes

int32_t Run(int64_t n, int32_t seed) {
  int32x4_t sums[kChains];
  for (auto& sum : sums) sum = vdupq_n_s32(seed);
  const int8x16_t a = vdupq_n_s8(static_cast<int8_t>(seed));
  const int8x16_t b = vdupq_n_s8(static_cast<int8_t>(seed ^ 5));
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = vmmlaq_s32(sums[i], a, b);
  }
  int32x4_t all = sums[0];
  for (int i = 1; i < kChains; ++i) all = veorq_s32(all, sums[i]);
  return vgetq_lane_s32(all, 0) ^ vgetq_lane_s32(all, 3);
}

}  // namespace

Bursts I8mmBursts() { return {{Run, int64_t{kChains} * 32}, NeonBursts().floats}; }

}  // namespace weft::peak
