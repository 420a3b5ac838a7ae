// Products and tables of every form of weights, and the activations that they want.
#include "device/dialect.h"
#include "kernels_gpu/kernels.h"
#include "kernels_gpu/matmul_device.h"
#include "kernels_gpu/matmul_one_device.h"

namespace weft::device {

// The bits of 2^-110: a block of activations below is taken as zero, so that 127 / max is finite.
constexpr uint32_t kSmallestBits = 17u << 23;

WEFT_KERNEL(QuantizeRows, QuantizeArgs) {
  const int row = BlockY(), head = BlockZ(), block = BlockX() * kQuantizeThreads + ThreadIndex();
  if (row >= *a.n_rows || block >= a.n_blocks) return;
  const float* const x =
      a.x.values + row * a.x.stride + head * a.x_head + static_cast<int64_t>(block) * kBlockInputs;
  const int64_t at = (static_cast<int64_t>(head) * a.head_rows + row) * a.n_blocks + block;
  int8_t* const q = a.out.q + at * kBlockInputs;
  uint32_t max_bits = 0;
  for (int i = 0; i < kBlockInputs; ++i) {
    const uint32_t bits = BitsOf(x[i]) & 0x7FFFFFFFu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const bool finite = max_bits < 0x7F800000u, scaled = finite && max_bits >= kSmallestBits;
  const float max = FloatOf(max_bits);
  const float inverse = scaled ? 127.0f / max : 0.0f;
  int sums[2] = {0, 0};
  for (int i = 0; i < kBlockInputs; ++i) {
    // Rounds to nearest even: |value| < 2^22.
    const float rounded = scaled ? (x[i] * inverse + 12582912.0f) - 12582912.0f : 0.0f;
    const int level = static_cast<int>(rounded);
    q[i] = static_cast<int8_t>(level);
    sums[i / 16] += level;
  }
  // A block that is not finite shows in every product of its row.
  a.out.scales[at] = scaled ? max / 127.0f : finite ? 0.0f : FloatOf(0x7FC00000u);
  a.out.sums[at] = static_cast<int32_t>((static_cast<uint32_t>(sums[1]) << 16) |
                                        (static_cast<uint32_t>(sums[0]) & 0xFFFFu));
}

#define WEFT_DEFINE_QUANT_(name, ...)                                      \
  using Form##name = __VA_ARGS__;                                          \
  WEFT_COOPERATIVE_KERNEL(MultiplyOne##name, MatmulArgs, kMatmulThreads) { \
    MultiplyOne<Form##name>(a);                                            \
  }                                                                        \
  WEFT_COOPERATIVE_KERNEL(Multiply##name, MatmulArgs, kMatmulThreads) {    \
    Multiply<QuantProduct<Form##name>, kMatmulRows>(a);                    \
  }                                                                        \
  WEFT_KERNEL(Embed##name, EmbedArgs) { EmbedQuantized<Form##name>(a); }
WEFT_QUANT_FORMS(WEFT_DEFINE_QUANT_)

#define WEFT_DEFINE_FLOAT_(name)                                           \
  WEFT_COOPERATIVE_KERNEL(MultiplyOne##name, MatmulArgs, kMatmulThreads) { \
    Multiply<FloatProduct<name>, 1>(a);                                    \
  }                                                                        \
  WEFT_COOPERATIVE_KERNEL(Multiply##name, MatmulArgs, kMatmulThreads) {    \
    Multiply<FloatProduct<name>, kMatmulRows>(a);                          \
  }                                                                        \
  WEFT_KERNEL(Embed##name, EmbedArgs) { EmbedFloats<name>(a); }
WEFT_FLOAT_FORMS(WEFT_DEFINE_FLOAT_)

}  // namespace weft::device
