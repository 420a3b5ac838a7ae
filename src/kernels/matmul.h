// Products of packed weight matrices with rows of activations.
//
// A matrix of n_out rows is packed once, at load, into tiles of 16 output rows
// interleaved along the input, so that one vector register holds 16 outputs and
// no horizontal sum is ever needed. The packed form does not depend on the
// instruction set.
//
// The order of summation is fixed by the type alone (docs/SAME_BITS.md): an output
// is one float accumulator that its inputs enter in ascending order, in blocks of 32
// whose products are exact integers for quantized weights, one by one for float
// weights. Nothing depends on the number of rows, on tiles, on threads or on the
// instruction set: one row alone and thirty-two together give the same bits, and so
// do all kernels (tests hold every vector kernel to the scalar one, bit for bit).
//
// Pure functions over caller memory; any thread.
#ifndef WEFT_KERNELS_MATMUL_H_
#define WEFT_KERNELS_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/isa.h"

namespace weft {

inline constexpr int kTileOutputs = 16;

// How activations enter a product with weights of some type.
enum class ActivationForm {
  kFloat,  // as they are: F32, F16, BF16 and types that have no packed form of their own
  kInt8,   // quantized per row in blocks of 32: the other quantized weights
};
ActivationForm ActivationFormOf(DType weight_type);

inline int64_t TileCount(int64_t n_out) { return (n_out + kTileOutputs - 1) / kTileOutputs; }
// Bytes of one packed tile of 16 outputs by n_in inputs; a multiple of 64.
int64_t PackedTileBytes(DType type, int64_t n_in);

// Packs 16 consecutive rows, the last tile's missing ones as zeros: `rows` points
// at the first, `n_rows` of them exist (1..16), each RowBytes(type, n_in) long.
// `tile` has PackedTileBytes bytes and is 64-byte aligned.
// Exact: no level and no scale changes.
// REQUIRES: CanDequantize(type), n_in a multiple of the type's block.
void PackTile(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile);

struct PackedMatrix {
  DType type = DType::kF32;  // of the source
  int64_t n_in = 0;
  int64_t n_out = 0;
  const std::byte* tiles = nullptr;  // TileCount(n_out) tiles, 64-byte aligned
};

// Rows of quantized activations, all of one width n (a multiple of 32), as
// quantize_row writes them. Block b of row r: q[r * n + 32 b ...], its scale at
// scales[r * n / 32 + b], and at sums[2 * (r * n / 32 + b)] the sum of the block's q,
// followed by the sums of its two halves of 16 as two int16, the first one low. All
// sums are negated (offsets and minima of the weights need them; negated they can be
// where an integer dot product starts).
struct Int8Rows {
  const int8_t* q = nullptr;
  const float* scales = nullptr;
  const int32_t* sums = nullptr;
};

// The activations of a product; the form that ActivationFormOf(type) names is set.
struct ActivationRows {
  const float* values = nullptr;  // row r at values + r * values_stride
  int64_t values_stride = 0;
  Int8Rows int8;
};

struct MatmulKernels {
  // Quantizes one row of n values (a multiple of 32) to n bytes, n / 32 scales and
  // 2 n / 32 sums: scale = max / 127 per block, q = round(value * (127 / max)), ties
  // to even. A block whose max is below 2^-110 becomes zeros with scale 0. A block
  // that holds an infinity or a NaN gets the scale NaN, so that the products of its
  // row are NaN: a broken row shows, and other rows do not see it.
  void (*quantize_row)(const float* values, int64_t n, int8_t* q, float* scales, int32_t* sums);

  // out[r * out_stride + o] = sum_i w[o][i] x[r][i], for rows r in [0, n_rows) and
  // the outputs o of tiles [tile_begin, tile_end) that are below n_out. Rows are
  // taken as they come; the kernel blocks over rows and tiles itself.
  void (*matmul)(const PackedMatrix& w, const ActivationRows& x, int64_t n_rows, int64_t tile_begin,
                 int64_t tile_end, float* out, int64_t out_stride);
};

// REQUIRES: `isa` is available.
const MatmulKernels& MatmulKernelsFor(Isa isa);

}  // namespace weft

#endif  // WEFT_KERNELS_MATMUL_H_
