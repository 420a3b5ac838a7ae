// The AVX2 kernels. Products of bytes are summed in 16 bits first.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/matmul/matmul_drive.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

// Levels of 8 bits would overflow the 16-bit sums of products as unsigned bytes.
// They are taken as signed weights instead: |weight| times the activation with the
// weight's sign, which fits even for -128.
constexpr bool IsSigned(const Format& f) { return f.bits == 8 || f.table == LevelTable::kIq4; }

// The greatest level, unless IsSigned(f).
constexpr int MostOf(const Format& f) {
  if (f.table == LevelTable::kNone) return (1 << f.bits) - 1;
  int max = 0;
  for (const int8_t value : ValuesOf(f.table)) max = max < value ? value : max;
  return max + (1 << f.offset_shift);
}

// How many groups' products of two inputs fit into a 16-bit sum: activations are at most 127.
constexpr int GroupsPerSum(const Format& f) {
  if (IsSigned(f)) return 1;
  int groups = 8;
  while (groups * 2 * 127 * MostOf(f) > 0x7FFF) groups /= 2;
  return groups;
}

#include "compute/kernels/matmul/matmul_avx2.inc"

// Group by group, kRows rows and both halves of the outputs together: loads are the bottleneck, and
// each load here serves all rows or both halves.
template <Format f, int kRows>
[[gnu::always_inline]] inline void Dot(const DecodedBlock<f>& block, const ActivationBlock& x,
                                       __m256i (&sums)[kRows][2]) {
  constexpr int kStep = GroupsPerSum(f);
  Unroll<8 / kStep>([&](auto step) __attribute__((always_inline)) {
    __m256i pairs[kRows][2];
    Unroll<kStep>([&](auto i) __attribute__((always_inline)) {
      constexpr int kGroup = GroupAt<f>(step.value * kStep + i.value);
      __m256i levels[2], signs[2];
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        Settle(levels[s.value] = Group<f, s.value, kGroup>(block));
        if constexpr (IsSigned(f)) {
          signs[s.value] = levels[s.value];
          Settle(levels[s.value] = _mm256_abs_epi8(levels[s.value]));
        }
      });
      Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        const __m256i four = Broadcast4(x.q[kGroup][r.value]);
        Unroll<2>([&](auto s) __attribute__((always_inline)) {
          __m256i signed_four = four;
          if constexpr (IsSigned(f)) {
            signed_four = _mm256_sign_epi8(four, signs[s.value]);
          }
          const __m256i products = _mm256_maddubs_epi16(levels[s.value], signed_four);
          __m256i& pair = pairs[r.value][s.value];
          Settle(pair = i.value == 0 ? products : _mm256_add_epi16(pair, products));
          if constexpr (i.value + 1 < kStep) return;
          const __m256i fours = _mm256_madd_epi16(pair, _mm256_set1_epi16(1));
          __m256i& sum = sums[r.value][s.value];
          Settle(sum = step.value == 0 ? fours : _mm256_add_epi32(sum, fours));
        });
      });
    });
  });
  if constexpr (f.offset_shift < 0 || IsSigned(f)) return;
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    const __m256i offset = NegatedOffset<f, 0>(x, r.value);
    for (__m256i& sum : sums[r.value]) sum = _mm256_add_epi32(sum, offset);
  });
}

template <Format f, int kHalf>
[[gnu::always_inline]] inline void DotHalf(const __m256i (&levels)[2][4], const ActivationBlock& x,
                                           int row, __m256i (&sums)[2]) {
  static_assert(!IsSigned(f));
  constexpr int kStep = GroupsPerSum(f) < 4 ? GroupsPerSum(f) : 4;
  Unroll<4 / kStep>([&](auto step) __attribute__((always_inline)) {
    __m256i pairs[2];
    Unroll<kStep>([&](auto i) __attribute__((always_inline)) {
      constexpr int kGroup = step.value * kStep + i.value;
      const __m256i four = Broadcast4(x.q[4 * kHalf + kGroup][row]);
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        const __m256i products = _mm256_maddubs_epi16(levels[s.value][kGroup], four);
        __m256i& pair = pairs[s.value];
        pair = i.value == 0 ? products : _mm256_add_epi16(pair, products);
      });
    });
    Unroll<2>([&](auto s) __attribute__((always_inline)) {
      const __m256i fours = _mm256_madd_epi16(pairs[s.value], _mm256_set1_epi16(1));
      __m256i& sum = sums[s.value];
      sum = step.value == 0 ? fours : _mm256_add_epi32(sum, fours);
    });
  });
  if constexpr (f.offset_shift < 0) return;
  const __m256i offset = NegatedOffset<f, kHalf>(x, row);
  for (__m256i& sum : sums) sum = _mm256_add_epi32(sum, offset);
}

#include "compute/kernels/matmul/matmul_dispatch.inc"

}  // namespace

const MatmulKernels kAvx2Kernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
