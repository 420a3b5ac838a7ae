// The kernels for ARM processors that multiply matrices of bytes (ARMv8.6's FEAT_I8MM): one
// instruction has the sums of two rows and two outputs over eight inputs, twice the work of a
// dot product. A row alone would waste half of it, and keeps the dot products.
#include <arm_neon.h>

#include <cstring>

#include "compute/kernels/matmul/matmul_drive.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

#include "compute/kernels/matmul/matmul_neon.inc"

// Register o of a pair holds the 8 inputs of outputs 2 o and 2 o + 1.
template <int kRows>
struct MatrixProducts {
  static_assert(kRows == 2 || kRows == kPanelRows);
  static constexpr int kRowPairs = kRows / 2;

  // Lanes 2 i + j of a sum: row 2 p + i, output 2 o + j.
  int32x4_t sums[kRowPairs][kPairRegisters];

  [[gnu::always_inline]] static void Arrange(int8x16_t (&pair)[kPairRegisters]) {
    int8x16_t arranged[kPairRegisters];
    Unroll<kQuads>([&](auto k) __attribute__((always_inline)) {
      const int32x4_t first = vreinterpretq_s32_s8(pair[k.value]);
      const int32x4_t second = vreinterpretq_s32_s8(pair[kQuads + k.value]);
      arranged[2 * k.value] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
      arranged[2 * k.value + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
    });
    Unroll<kPairRegisters>([&](auto i) { pair[i.value] = arranged[i.value]; });
  }
  [[gnu::always_inline]] void Start(int32x4_t starts) {
    Unroll<kPairRegisters>([&](auto o) __attribute__((always_inline)) {
      sums[0][o.value] = vzip1q_s32(starts, starts);
      if constexpr (kRowPairs > 1) sums[1][o.value] = vzip2q_s32(starts, starts);
    });
  }
  [[gnu::always_inline]] void Add(const int8x16_t (&pair)[kPairRegisters], int8x16_t first,
                                  int8x16_t second) {
    const int32x4_t low = vreinterpretq_s32_s8(first), high = vreinterpretq_s32_s8(second);
    const int8x16_t rows[2] = {vreinterpretq_s8_s32(vzip1q_s32(low, high)),
                               vreinterpretq_s8_s32(vzip2q_s32(low, high))};
    Unroll<kRowPairs>([&](auto p) __attribute__((always_inline)) {
      constexpr int kRowPair = p.value;
      Unroll<kPairRegisters>([&](auto o) __attribute__((always_inline)) {
        int32x4_t& sum = sums[kRowPair][o.value];
        sum = vmmlaq_s32(sum, rows[kRowPair], pair[o.value]);
      });
    });
  }
  template <int kRow, int kQuad>
  [[gnu::always_inline]] int32x4_t Quad() const {
    const int64x2_t low = vreinterpretq_s64_s32(sums[kRow / 2][2 * kQuad]);
    const int64x2_t high = vreinterpretq_s64_s32(sums[kRow / 2][2 * kQuad + 1]);
    return vreinterpretq_s32_s64(kRow % 2 == 0 ? vzip1q_s64(low, high) : vzip2q_s64(low, high));
  }
};

template <Format f, int kRows>
void Int8Tile(const TileWork& work) {
  if constexpr (kRows == 1) {
    MultiplyTile<DotProducts, f, kRows>(work);
  } else {
    MultiplyTile<MatrixProducts, f, kRows>(work);
  }
}

#include "compute/kernels/matmul/matmul_dispatch.inc"

}  // namespace

const MatmulKernels kI8mmKernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
