// The instruction sets that the CPU kernels exist for, and the choice of one.
#ifndef WEFT_COMPUTE_KERNELS_ISA_H_
#define WEFT_COMPUTE_KERNELS_ISA_H_

#include <span>
#include <string_view>

namespace weft {

enum class Isa {
  kScalar,   // portable C++; the oracle of the others
  kAvx2,     // AVX2 + FMA + F16C
  kAvxVnni,  // and AVX-VNNI: dot products of bytes
  kAvx512,   // AVX-512 F/BW/DQ/VL/VNNI
  kNeon,     // AArch64 with dot products (ARMv8.2)
  kI8mm,     // and products of matrices of bytes (ARMv8.6)
};

std::string_view NameOf(Isa isa);  // "scalar", "avx2", "avxvnni", "avx512", "neon", "i8mm"

// What this machine can run, slowest first; always holds kScalar.
std::span<const Isa> AvailableIsas();

// The fastest available, or the one named by the environment variable WEFT_ISA
// where that is available. Read once, at the first call.
Isa PreferredIsa();

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_ISA_H_
