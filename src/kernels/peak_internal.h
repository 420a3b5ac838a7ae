// One burst of independent integer products per instruction set, for peak.cc.
#ifndef WEFT_KERNELS_PEAK_INTERNAL_H_
#define WEFT_KERNELS_PEAK_INTERNAL_H_

#include <cstdint>

namespace weft::peak {

struct Burst {
  // Runs `n` rounds from `seed`; the result depends on all of them.
  int32_t (*run)(int64_t n, int32_t seed);
  int64_t macs_per_round;
};

Burst ScalarBurst();
#if defined(__x86_64__)
Burst Avx2Burst();
Burst Avx512Burst();
#elif defined(__aarch64__)
Burst NeonBurst();
Burst I8mmBurst();
#endif

}  // namespace weft::peak

#endif  // WEFT_KERNELS_PEAK_INTERNAL_H_
