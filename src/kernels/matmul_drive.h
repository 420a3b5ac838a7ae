// The loops over rows and tiles around the vector kernels of one instruction set.
// Static for the reason given in matmul_format.h.
#ifndef WEFT_KERNELS_MATMUL_DRIVE_H_
#define WEFT_KERNELS_MATMUL_DRIVE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matmul.h"
#include "kernels/matmul_format.h"

namespace weft::matmul_internal {

// One tile by a fixed number of rows: writes `lanes` (1..16) outputs to
// out + r * out_stride for the rows row, row + 1, ...
using TileFunction = void (*)(const PackedMatrix& w, const std::byte* tile, const ActivationRows& x,
                              int64_t row, int lanes, float* out, int64_t out_stride);

static constexpr int kRowSizes = 4;
static constexpr int kMostRows = 1 << (kRowSizes - 1);

// The functions for 1, 2, 4 and 8 rows. (Sixteen at once are no faster: by then the
// decoding of a tile is paid, and the addresses of rows outnumber the registers.)
struct TileFunctions {
  TileFunction by_log2_rows[kRowSizes];
};

// Activations of one pass over the tiles stay about below this, to live in L2.
static constexpr int64_t kPassActivationBytes = 256 << 10;

static inline int64_t RowsPerPass(const PackedMatrix& w) {
  const int64_t row_bytes = IsInt8(FormatOf(w.type)) ? w.n_in : 4 * w.n_in;
  const int64_t rows = kPassActivationBytes / (row_bytes + 1) / kMostRows * kMostRows;
  return rows < kMostRows ? kMostRows : rows;
}

static inline void DriveTiles(const TileFunctions& functions, const PackedMatrix& w,
                              const ActivationRows& x, int64_t n_rows, int64_t tile_begin,
                              int64_t tile_end, float* out, int64_t out_stride) {
  const int64_t tile_bytes = PackedTileBytes(w.type, w.n_in);
  const int64_t rows_per_pass = RowsPerPass(w);
  for (int64_t pass = 0; pass < n_rows; pass += rows_per_pass) {
    const int64_t pass_end = n_rows - pass < rows_per_pass ? n_rows : pass + rows_per_pass;
    for (int64_t t = tile_begin; t < tile_end; ++t) {
      const std::byte* tile = w.tiles + t * tile_bytes;
      const int64_t left = w.n_out - t * kLanes;
      const int lanes = left < kLanes ? static_cast<int>(left) : kLanes;
      int log2_rows = kRowSizes - 1;
      for (int64_t row = pass; row < pass_end; row += int64_t{1} << log2_rows) {
        while (int64_t{1} << log2_rows > pass_end - row) --log2_rows;
        functions.by_log2_rows[log2_rows](w, tile, x, row, lanes,
                                          out + row * out_stride + t * kLanes, out_stride);
      }
    }
  }
}

}  // namespace weft::matmul_internal

#endif  // WEFT_KERNELS_MATMUL_DRIVE_H_
