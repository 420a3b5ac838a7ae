// The dialect of C++ for kernels: nvcc compiles it for a device, and the host's compiler for the
// emulator. Kernels include only this header, its own includes, and headers of constants and
// structs.
//
//   WEFT_KERNEL(Name, Args) { ... a.field ... }             one thread; `a` is a const Args
//   WEFT_COOPERATIVE_KERNEL(Name, Args, threads) { ... }    may wait for other threads
//   WEFT_RESIDENT_KERNEL(Name, Args, threads, blocks)       the same, with few enough registers for
//                                                           `blocks` blocks per multiprocessor
//   WEFT_STAGING_KERNEL(Name, Args, threads, bytes)         the same, with `bytes` of dynamic
//                                                           shared memory, up to kSharedBytes
//   WEFT_DEVICE                                             prefix of functions for kernels
//   WEFT_SHARED(type, name, n);                             an array of words of the whole block
//   WEFT_DYNAMIC_SHARED(type, name, first, n);              the same, in dynamic shared memory
//                                                           from word `first` on
//
// The rules of kernels, which make a device's bits equal to the emulator's:
//
//   - A fused multiply-add is written Fma; the compiler fuses nothing (nvcc gets -fmad=false). Only
//     + - * / Fma SquareRoot and conversions, which IEEE defines, compute floats; exp and functions
//     based on it are in compute/kernels_gpu/math.h. No library functions, no approximations.
//   - No sum whose order depends on timing. Blocks synchronize only by Arrive.
//   - All threads of a block reach each barrier, at the same place in the code; a thread may leave
//     early only with its whole block, and all lanes of a warp take part in an exchange.
//   - WEFT_SHARED is at the top of a kernel. Between a write to shared memory and another thread's
//     use of it there is a barrier, also within a warp.
//   - A copied word may be used by the thread that copied it after its wait, and by others after a
//     barrier that follows the wait; each copy is waited for.
//
// Global memory, several words in one access, aligned to the whole access. Load and Store are for
// single values that the emulator should count as accesses of a warp:
//   Load(p), Store(p, x), LoadWords2/4(p), StoreWords4(p, x)
// Shared memory likewise, from element `word` on, a multiple of 2 or 4; arrays are aligned to 4
// words:
//   ReadWords2/4(shared, word), WriteWords4(shared, word, x)
// Asynchronous copies from global to shared memory (synchronous on devices without them):
//   CopyWords4(shared, word, from)    begins to copy
//   CommitCopies()                    the copies begun since the last call form a group
//   WaitCopies<n>()                   waits for the thread's own groups, except the newest n
//
// Cooperation between blocks of one launch or of consecutive launches:
//   Arrive(count, n, all)    called by one thread, between two barriers: adds n to *count, which
//                            starts at 0; returns whether that makes `all`. If so, *count is reset
//                            to 0, and the block may read what the others wrote before arriving.
//
// PickBytes(a, b, places): byte j is one of the eight of a and b (a's are 0 to 3), that which the
// low three bits of nibble j of `places` say.
//
// Other names of the dialect: ThreadIndex, ThreadCount, BlockX/Y/Z, Barrier, ShuffleXor, Shuffle,
// CountTile, kProcessorSharedBytes, DotBytes, MultiplyTile16, MultiplyTile32, Fma, SquareRoot,
// BitsOf, FloatOf, HalfToFloat, FloatToHalf, BfloatToFloat, FloatToBfloat, Max, Min, Abs.
#ifndef WEFT_COMPUTE_DEVICE_DIALECT_H_
#define WEFT_COMPUTE_DEVICE_DIALECT_H_

#if defined(__CUDACC__)
#include "compute/device/dialect_cuda.h"
#else
#include "compute/device/dialect_emulated.h"
#endif

namespace weft::device {

// --- tiles of bytes -----------------------------------------------------------------------
//
// A warp multiplies 16 rows by 8 columns of 16 or 32 signed bytes each, and adds the products to
// integer sums, exactly. Lane l, with g = l / 4 and k = l % 4, provides four bytes at a time:
//   a0, a1: of rows g and g + 8, bytes 4 k ...; a2, a3: of the same rows, bytes 16 + 4 k ...
//   b0, b1: of column g, bytes 4 k ... and 16 + 4 k ...
// and holds the sums of rows g, g, g + 8, g + 8 with columns 2 k, 2 k + 1, 2 k, 2 k + 1.

WEFT_DEVICE uint32_t ShuffleWord(uint32_t word, int lane) {
  return BitsOf(Shuffle(FloatOf(word), lane));
}

#if defined(__CUDACC__)
// For devices without an instruction for it.
WEFT_DEVICE void MultiplyTileByLanes(uint32_t a0, uint32_t a1, uint32_t b, int* sums) {
  const int lane = ThreadIndex() % 32, rows = lane / 4 * 4, columns = lane % 4 * 8;
  for (int k = 0; k < 4; ++k) {
    const uint32_t x0 = ShuffleWord(a0, rows + k), x1 = ShuffleWord(a1, rows + k);
    const uint32_t y0 = ShuffleWord(b, columns + k), y1 = ShuffleWord(b, columns + 4 + k);
    sums[0] = DotBytes(x0, y0, sums[0]);
    sums[1] = DotBytes(x0, y1, sums[1]);
    sums[2] = DotBytes(x1, y0, sums[2]);
    sums[3] = DotBytes(x1, y1, sums[3]);
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
WEFT_DEVICE void MultiplyTile16(uint32_t a0, uint32_t a1, uint32_t b, int* sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(b));
}
WEFT_DEVICE void MultiplyTile32(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, int* sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#elif defined(__CUDA_ARCH__)
// A tile of 8 rows and 16 bytes, with the same assignment of parts to lanes.
WEFT_DEVICE void MultiplyTile8(uint32_t a, uint32_t b, int* sums) {
  asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+r"(sums[0]), "+r"(sums[1])
               : "r"(a), "r"(b));
}
WEFT_DEVICE void MultiplyTile16(uint32_t a0, uint32_t a1, uint32_t b, int* sums) {
  MultiplyTile8(a0, b, sums);
  MultiplyTile8(a1, b, sums + 2);
}
WEFT_DEVICE void MultiplyTile32(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, int* sums) {
  MultiplyTile16(a0, a1, b0, sums);
  MultiplyTile16(a2, a3, b1, sums);
}
#else
WEFT_DEVICE void MultiplyTile16(uint32_t a0, uint32_t a1, uint32_t b, int* sums) {
  MultiplyTileByLanes(a0, a1, b, sums);
}
WEFT_DEVICE void MultiplyTile32(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, int* sums) {
  MultiplyTileByLanes(a0, a1, b0, sums);
  MultiplyTileByLanes(a2, a3, b1, sums);
}
#endif
#endif

// --- numbers ------------------------------------------------------------------------------

WEFT_DEVICE float Max(float a, float b) { return a < b ? b : a; }
WEFT_DEVICE float Min(float a, float b) { return b < a ? b : a; }
// Not the hardware instructions, which older devices lack.
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

#endif  // WEFT_COMPUTE_DEVICE_DIALECT_H_
