// The machine's own limits, measured: no kernel here can exceed them. Benchmarks
// print their results as shares of these.
//
// Each call computes for about `seconds` on the calling thread; run it on every
// thread at once to learn what the machine gives to all of them.
#ifndef WEFT_COMPUTE_KERNELS_PEAK_H_
#define WEFT_COMPUTE_KERNELS_PEAK_H_

#include <cstddef>
#include <span>

#include "compute/kernels/isa.h"

namespace weft {

// Multiply-adds of any 8-bit integers per second, in registers. (With AVX2, which has no dot
// product of bytes, levels of few bits take fewer instructions, and may exceed it.)
double MeasureInt8MacsPerSecond(Isa isa, double seconds);
// And of floats.
double MeasureFloatMacsPerSecond(Isa isa, double seconds);

// Bytes per second read from `memory`, which must be much larger than the caches.
double MeasureReadBytesPerSecond(std::span<const std::byte> memory, double seconds);

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_PEAK_H_
