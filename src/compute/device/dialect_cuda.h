// The dialect for nvcc; see dialect.h.
#ifndef WEFT_COMPUTE_DEVICE_DIALECT_CUDA_H_
#define WEFT_COMPUTE_DEVICE_DIALECT_CUDA_H_

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "compute/device/kernel.h"
#include "compute/device/words.h"

#define WEFT_DEVICE __device__ __forceinline__
#define WEFT_UNROLL _Pragma("unroll")

#define WEFT_KERNEL(Name, Args) \
  extern "C" __global__ void __launch_bounds__(256, 1) Name(const Args a)
#define WEFT_COOPERATIVE_KERNEL(Name, Args, threads) WEFT_RESIDENT_KERNEL(Name, Args, threads, 1)
#define WEFT_RESIDENT_KERNEL(Name, Args, threads, blocks) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) Name(const Args a)
#define WEFT_STAGING_KERNEL(Name, Args, threads, bytes)                     \
  static_assert((bytes) <= ::weft::device::kSharedBytes, "of each device"); \
  WEFT_COOPERATIVE_KERNEL(Name, Args, threads)
#define WEFT_SHARED(type, name, n) __shared__ __align__(16) type name[n]
#define WEFT_DYNAMIC_SHARED(type, name, first, n) \
  type* const name = reinterpret_cast<type*>(::weft::device::dynamic_shared) + (first)

namespace weft::device {

extern __shared__ __align__(16) uint32_t dynamic_shared[];

// Shared memory of a multiprocessor, divided among its resident blocks.
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
inline constexpr int kProcessorSharedBytes = 228 << 10;
#elif __CUDA_ARCH__ == 800
inline constexpr int kProcessorSharedBytes = 164 << 10;
#elif __CUDA_ARCH__ > 800
inline constexpr int kProcessorSharedBytes = 100 << 10;
#else
inline constexpr int kProcessorSharedBytes = 64 << 10;
#endif

WEFT_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
WEFT_DEVICE int ThreadCount() { return static_cast<int>(blockDim.x); }
WEFT_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
WEFT_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
WEFT_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }

WEFT_DEVICE void Barrier() { __syncthreads(); }

WEFT_DEVICE void CountTile() {}

WEFT_DEVICE bool Arrive(int32_t* count, int n, int all) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(count)), "r"(n)
               : "memory");
  if (before + n != all) return false;
  *count = 0;
  return true;
}

// Without the assumption, the compiler emits slower generic loads through pointers that were
// themselves loaded.
template <typename T>
WEFT_DEVICE const T* Global(const void* p) {
  __builtin_assume(__isGlobal(p));
  return static_cast<const T*>(p);
}
WEFT_DEVICE Words4 FromUint4(const uint4& x) { return {{x.x, x.y, x.z, x.w}}; }
WEFT_DEVICE uint4 ToUint4(const Words4& x) { return make_uint4(x.w[0], x.w[1], x.w[2], x.w[3]); }

template <typename T>
WEFT_DEVICE T Load(const T* p) {
  return *Global<T>(p);
}
template <typename T>
WEFT_DEVICE void Store(T* p, std::type_identity_t<T> x) {
  __builtin_assume(__isGlobal(p));
  *p = x;
}
WEFT_DEVICE Words2 LoadWords2(const void* p) {
  const uint2 x = *Global<uint2>(p);
  return {{x.x, x.y}};
}
WEFT_DEVICE Words4 LoadWords4(const void* p) { return FromUint4(*Global<uint4>(p)); }
WEFT_DEVICE void StoreWords4(void* p, const Words4& x) {
  __builtin_assume(__isGlobal(p));
  *static_cast<uint4*>(p) = ToUint4(x);
}
template <typename T>
WEFT_DEVICE Words2 ReadWords2(const T* shared, int word) {
  const uint2 x = *reinterpret_cast<const uint2*>(shared + word);
  return {{x.x, x.y}};
}
template <typename T>
WEFT_DEVICE Words4 ReadWords4(const T* shared, int word) {
  return FromUint4(*reinterpret_cast<const uint4*>(shared + word));
}
template <typename T>
WEFT_DEVICE void WriteWords4(T* shared, int word, const Words4& x) {
  *reinterpret_cast<uint4*>(shared + word) = ToUint4(x);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <typename T>
WEFT_DEVICE void CopyWords4(T* shared, int word, const void* from) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared + word));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from))
               : "memory");
}
WEFT_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
WEFT_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}
#else
template <typename T>
WEFT_DEVICE void CopyWords4(T* shared, int word, const void* from) {
  WriteWords4(shared, word, LoadWords4(from));
}
WEFT_DEVICE void CommitCopies() {}
template <int kLeft>
WEFT_DEVICE void WaitCopies() {}
#endif

WEFT_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
WEFT_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

WEFT_DEVICE float Shuffle(float value, int lane) { return __shfl_sync(0xFFFFFFFFu, value, lane); }
WEFT_DEVICE float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}

WEFT_DEVICE int DotBytes(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

WEFT_DEVICE uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t places) {
  return __byte_perm(a, b, places);
}
WEFT_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
WEFT_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
WEFT_DEVICE float HalfToFloat(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WEFT_DEVICE uint16_t FloatToHalf(float x) { return __half_as_ushort(__float2half_rn(x)); }

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_DIALECT_CUDA_H_
