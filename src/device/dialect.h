// The language that kernels are written in, beside C++: compiled by nvcc for a device, and by
// the host's compiler for the emulator. Kernels include this and what it includes, nothing else
// but headers of constants and structs.
//
//   WEFT_KERNEL(Name, Args) { ... a.field ... }             one thread; `a` is a const Args
//   WEFT_COOPERATIVE_KERNEL(Name, Args, threads) { ... }     may wait for other threads
//   WEFT_DEVICE                                              before a function of kernels
//   WEFT_SHARED(type, name, n);                              an array of the block, of words
//
// The rules of kernels, which keep a device's bits equal to the emulator's:
//
//   - A fused multiply-add is written Fma; nothing else is fused (nvcc gets -fmad=false). Only
//     + - * / Fma SquareRoot and conversions, which IEEE defines, compute floats; exp and what
//     is made of it are in kernels_gpu/math.h. No library's, no approximate ones.
//   - No atomic operation on a float, and no sum whose order depends on who comes first.
//   - All threads of a block reach each barrier, at one place in the code; a thread may leave
//     early only with its whole block, and all lanes of a warp take part in an exchange.
//   - WEFT_SHARED stands at a kernel's top. Between a write to shared memory and another
//     thread's use of it there is a barrier, also within a warp.
//
// Names of the dialect: ThreadIndex, ThreadCount, BlockX/Y/Z, Barrier, ShuffleXor, Shuffle,
// DotBytes, Fma, SquareRoot, BitsOf, FloatOf, HalfToFloat, FloatToHalf, BfloatToFloat,
// FloatToBfloat, Max, Min, Abs.
#ifndef WEFT_DEVICE_DIALECT_H_
#define WEFT_DEVICE_DIALECT_H_

#if defined(__CUDACC__)
#include "device/dialect_cuda.h"
#else
#include "device/dialect_emulated.h"
#endif

namespace weft::device {

WEFT_DEVICE float Max(float a, float b) { return a < b ? b : a; }
WEFT_DEVICE float Min(float a, float b) { return b < a ? b : a; }
// Not the instructions, which older devices do not have.
WEFT_DEVICE float BfloatToFloat(uint16_t bits) {
  return FloatOf(static_cast<uint32_t>(bits) << 16);
}
WEFT_DEVICE uint16_t FloatToBfloat(float x) {
  const uint32_t bits = BitsOf(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
WEFT_DEVICE float Abs(float x) { return FloatOf(BitsOf(x) & 0x7FFFFFFFu); }
WEFT_DEVICE int Max(int a, int b) { return a < b ? b : a; }
WEFT_DEVICE int Min(int a, int b) { return b < a ? b : a; }

}  // namespace weft::device

#endif  // WEFT_DEVICE_DIALECT_H_
