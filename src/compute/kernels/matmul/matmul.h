// Products of packed weight matrices with rows of activations.
//
// A matrix of n_out rows is packed once, at load, into tiles of 16 output rows
// interleaved along the input, so that one vector register holds 16 outputs and
// no horizontal sum is ever needed. The packed form does not depend on the
// instruction set.
//
// The order of summation is fixed by the type alone (src/compute/kernels/README.md): an output
// is one float accumulator that its inputs enter in ascending order, in blocks of 32
// (16, where that many share a scale) whose products are exact integers for quantized
// weights, one by one for float weights. Nothing depends on the number of rows, on tiles, on
// threads or on the instruction set: one row alone and thirty-two together give the same bits, and
// so do all kernels (tests hold every vector kernel to the scalar one, bit for bit).
//
// Pure functions over caller memory; any thread.
#ifndef WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_H_
#define WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "compute/kernels/isa.h"

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

// Stands for how weights are packed: raised with every change of that, so that packed weights which
// were kept are not taken for those of today (matmul_test holds the form to it).
inline constexpr uint64_t kPackedForm = 2;

// Packs 16 consecutive rows, the last tile's missing ones as zeros: `rows` points
// at the first, `n_rows` of them exist (1..16), each RowBytes(type, n_in) long.
// `tile` has PackedTileBytes bytes and is 64-byte aligned.
// Exact: no level and no scale changes.
// REQUIRES: CanDequantize(type), n_in a multiple of the type's block.
void PackTile(DType type, const std::byte* rows, int n_rows, int64_t n_in, std::byte* tile);

struct PackedMatrix {
  DType type = DType::kF32;  // the source's
  int64_t n_in = 0;
  int64_t n_out = 0;
  const std::byte* tiles = nullptr;  // TileCount(n_out) tiles, 64-byte aligned
};

// 32 quantized activations of each of 4 rows, as quantize_row writes them: everything that
// a kernel reads, in its order of access and in one place.
inline constexpr int kPanelRows = 4;
struct alignas(64) ActivationBlock {
  int8_t q[8][kPanelRows][4];  // [group][row][input of the group]
  float scale[kPanelRows];
  float sum[kPanelRows];          // minus the sum of q
  int32_t starts[4][kPanelRows];  // starting values of dot products, see matmul_format.h
  int32_t half_sums[kPanelRows];  // two int16: minus the sums of 16 q each, the first one low
};

// Rows of quantized activations, all of one width n (a multiple of 32), in panels of
// 4: block b of row r is in blocks[r / 4 * (n / 32) + b], as its row r % 4. Rows that
// are missing in the last panel hold anything.
struct Int8Rows {
  const ActivationBlock* blocks = nullptr;
};
inline int64_t PanelCount(int64_t n_rows) { return (n_rows + kPanelRows - 1) / kPanelRows; }

// The activations of a product; the form that ActivationFormOf(type) names is set.
struct ActivationRows {
  const float* values = nullptr;  // row r at values + r * values_stride
  int64_t values_stride = 0;
  Int8Rows int8;
};

struct MatmulKernels {
  // Quantizes n values (a multiple of 32) to row `row` (0..3) of n / 32 blocks: scale = max / 127
  // per block, q = round(value * (127 / max)), ties to even. A block whose max is below 2^-110
  // becomes zeros with scale 0. A block that holds an infinity or a NaN gets the scale NaN, so that
  // the products of its row are NaN: a broken row shows, and other rows do not see it.
  void (*quantize_row)(const float* values, int64_t n, int row, ActivationBlock* blocks);

  // out[r * out_stride + o] = sum_i w[o][i] x[r][i], for rows r in [0, n_rows) and
  // the outputs o of tiles [tile_begin, tile_end) that are below n_out. Rows are
  // taken as they come; the kernel blocks over rows and tiles itself.
  void (*matmul)(const PackedMatrix& w, const ActivationRows& x, int64_t n_rows, int64_t tile_begin,
                 int64_t tile_end, float* out, int64_t out_stride);
};

// REQUIRES: `isa` is available.
const MatmulKernels& MatmulKernelsFor(Isa isa);

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_H_
