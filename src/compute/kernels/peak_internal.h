// Bursts of independent products per instruction set, for peak.cc.
#ifndef WEFT_COMPUTE_KERNELS_PEAK_INTERNAL_H_
#define WEFT_COMPUTE_KERNELS_PEAK_INTERNAL_H_

#include <cstdint>

namespace weft::peak {

struct Burst {
  // Runs `n` rounds from `seed`; the result depends on all of them.
  int32_t (*run)(int64_t n, int32_t seed);
  int64_t macs_per_round;
};

// Bursts of multiply-adds of 8-bit integers, and of floats.
struct Bursts {
  Burst int8, floats;
};

Bursts ScalarBursts();
#if defined(__x86_64__)
Bursts Avx2Bursts();
Bursts AvxVnniBursts();
Bursts Avx512Bursts();
#elif defined(__aarch64__)
Bursts NeonBursts();
Bursts I8mmBursts();
#endif

}  // namespace weft::peak

#endif  // WEFT_COMPUTE_KERNELS_PEAK_INTERNAL_H_
