// Quantized activations: how kernels turn blocks of 32 values into levels, a scale and sums, and
// how these are stored.
#ifndef WEFT_COMPUTE_KERNELS_GPU_QUANTIZE_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_QUANTIZE_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/kernels.h"

namespace weft::device {

// Adjacent lanes that share a block, and the number of values per lane.
inline constexpr int kQuantizeLanes = 8;
inline constexpr int kQuantizeEach = kBlockInputs / kQuantizeLanes;
// The bits of 2^-110: a smaller block counts as zero, so that 127 / max is finite.
inline constexpr uint32_t kSmallestBits = 17u << 23;

WEFT_DEVICE uint32_t ExchangeWord(uint32_t word, int mask) {
  return BitsOf(ShuffleXor(FloatOf(word), mask));
}

// Quantizes block `block` of a row of n_blocks blocks; `values` are this lane's values. All lanes
// of the warp take part; `there`: the block exists.
WEFT_DEVICE void QuantizeBlock(const float* values, const Int8View& out, int64_t row, int block,
                               int n_blocks, bool there) {
  const int lane = ThreadIndex() % kQuantizeLanes;
  uint32_t max_bits = 0;
  WEFT_UNROLL
  for (int i = 0; i < kQuantizeEach; ++i) {
    const uint32_t bits = BitsOf(values[i]) & 0x7FFFFFFFu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  WEFT_UNROLL
  for (int mask = kQuantizeLanes / 2; mask > 0; mask /= 2) {
    const uint32_t bits = ExchangeWord(max_bits, mask);
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const bool finite = max_bits < 0x7F800000u, scaled = finite && max_bits >= kSmallestBits;
  const float max = FloatOf(max_bits);
  const float inverse = scaled ? 127.0f / max : 0.0f;
  uint32_t bytes = 0, sum = 0;
  WEFT_UNROLL
  for (int i = 0; i < kQuantizeEach; ++i) {
    // Rounds to nearest even: |value| < 2^22.
    const float rounded = scaled ? (values[i] * inverse + 12582912.0f) - 12582912.0f : 0.0f;
    const auto level = static_cast<uint32_t>(static_cast<int>(rounded));
    bytes |= (level & 0xFFu) << (8 * i);
    sum += level;
  }
  // The sum of each half of the block.
  sum += ExchangeWord(sum, 1);
  sum += ExchangeWord(sum, 2);
  const uint32_t other = ExchangeWord(sum, 4);
  if (!there) return;
  const int64_t at = row * n_blocks + block;
  reinterpret_cast<uint32_t*>(out.q + at * kBlockInputs)[lane] = bytes;
  if (lane != 0) return;
  // A block with a non-finite value gets a scale of NaN, so that every product of its row is NaN.
  uint32_t* const meta = out.meta + MetaAt(n_blocks, row, block);
  meta[0] = BitsOf(scaled ? max / 127.0f : finite ? 0.0f : FloatOf(0x7FC00000u));
  meta[4] = (other << 16) | (sum & 0xFFFFu);
  meta[8] = BitsOf(static_cast<float>(static_cast<int>(sum + other)));
  const int n_missing = block == n_blocks - 1 ? 3 - block % 4 : 0;
  for (int i = 1; i <= n_missing; ++i) meta[i] = meta[4 + i] = meta[8 + i] = 0;
}

// Loads four contiguous values, in one access if they are aligned. The other branch is volatile,
// because the compiler would otherwise merge both branches and load value by value.
WEFT_DEVICE void LoadFour(const float* p, float* values) {
  if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
    const Words4 words = LoadWords4(p);
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) values[i] = FloatOf(words.w[i]);
  } else {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) values[i] = static_cast<const volatile float*>(p)[i];
  }
}

WEFT_DEVICE void StoreFour(float* p, const float* values) {
  if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
    StoreWords4(p, {{BitsOf(values[0]), BitsOf(values[1]), BitsOf(values[2]), BitsOf(values[3])}});
  } else {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) p[i] = values[i];
  }
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_QUANTIZE_DEVICE_H_
