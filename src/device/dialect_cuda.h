// The device's side of the dialect, for nvcc; see dialect.h.
#ifndef WEFT_DEVICE_DIALECT_CUDA_H_
#define WEFT_DEVICE_DIALECT_CUDA_H_

#include <cuda_fp16.h>

#include <cstdint>

#define WEFT_DEVICE __device__ __forceinline__
#define WEFT_UNROLL _Pragma("unroll")

#define WEFT_KERNEL(Name, Args) \
  extern "C" __global__ void __launch_bounds__(256, 1) Name(const Args a)
#define WEFT_COOPERATIVE_KERNEL(Name, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads, 1) Name(const Args a)
#define WEFT_SHARED(type, name, n) __shared__ type name[n]

namespace weft::device {

WEFT_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
WEFT_DEVICE int ThreadCount() { return static_cast<int>(blockDim.x); }
WEFT_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
WEFT_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
WEFT_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }

WEFT_DEVICE void Barrier() { __syncthreads(); }

WEFT_DEVICE void CountTile() {}

WEFT_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
WEFT_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }

WEFT_DEVICE float Shuffle(float value, int lane) { return __shfl_sync(0xFFFFFFFFu, value, lane); }
WEFT_DEVICE float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}

WEFT_DEVICE int DotBytes(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}

WEFT_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
WEFT_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
WEFT_DEVICE float HalfToFloat(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WEFT_DEVICE uint16_t FloatToHalf(float x) { return __half_as_ushort(__float2half_rn(x)); }

}  // namespace weft::device

#endif  // WEFT_DEVICE_DIALECT_CUDA_H_
