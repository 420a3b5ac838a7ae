// The kernels for AVX2 with dot products of bytes (AVX-VNNI). Nothing overflows, so that levels
// stay unsigned.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/dot_products_avxvnni.h"
#include "compute/kernels/matmul/matmul_drive.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

constexpr bool IsSigned(const Format&) { return false; }

#include "compute/kernels/matmul/matmul_avx2.inc"

// Group by group, all rows side by side: the products of one sum wait for each other.
template <Format f, int kRows>
[[gnu::always_inline]] inline void Dot(const DecodedBlock<f>& block, const ActivationBlock& x,
                                       __m256i (&sums)[kRows][2]) {
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    sums[r.value][0] = sums[r.value][1] = NegatedOffset<f, 0>(x, r.value);
  });
  Unroll<8>([&](auto i) __attribute__((always_inline)) {
    constexpr int kGroup = GroupAt<f>(i.value);
    __m256i levels[2];
    Unroll<2>([&](auto s) __attribute__((always_inline)) {
      Settle(levels[s.value] = Group<f, s.value, kGroup>(block));
    });
    Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m256i four = Broadcast4(x.q[kGroup][r.value]);
      Unroll<2>([&](auto s) __attribute__((always_inline)) {
        __m256i& sum = sums[r.value][s.value];
        AddByteProducts(levels[s.value], four, &sum);
        Settle(sum);
      });
    });
  });
}

template <Format f, int kHalf>
[[gnu::always_inline]] inline void DotHalf(const __m256i (&levels)[2][4], const ActivationBlock& x,
                                           int row, __m256i (&sums)[2]) {
  sums[0] = sums[1] = NegatedOffset<f, kHalf>(x, row);
  Unroll<4>([&](auto g) __attribute__((always_inline)) {
    const __m256i four = Broadcast4(x.q[4 * kHalf + g.value][row]);
    Unroll<2>([&](auto s) __attribute__((always_inline)) {
      AddByteProducts(levels[s.value][g.value], four, &sums[s.value]);
    });
  });
}

#include "compute/kernels/matmul/matmul_dispatch.inc"

}  // namespace

const MatmulKernels kAvxVnniKernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
