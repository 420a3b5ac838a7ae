// What the vector kernels of all instruction sets share: the loops over rows and tiles around
// them, loops that are unrolled, prefetching.
// Static for the reason given in matmul_format.h.
#ifndef WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_DRIVE_H_
#define WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_DRIVE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "compute/kernels/matmul/matmul.h"
#include "compute/kernels/matmul/matmul_format.h"

namespace weft::matmul_internal {

template <int N>
struct Int {
  static constexpr int value = N;
};

template <typename F, int... I>
[[gnu::always_inline]] static inline void UnrollOver(F&& f, std::integer_sequence<int, I...>) {
  (f(Int<I>()), ...);
}

// f(Int<0>()), ..., f(Int<N - 1>()): loops over registers, whose index is a constant in every
// build mode.
template <int N, typename F>
[[gnu::always_inline]] static inline void Unroll(F&& f) {
  UnrollOver(f, std::make_integer_sequence<int, N>());
}

// Bytes that a kernel asks for ahead of the block it works on.
static constexpr int64_t kPrefetchBytes = 8192;

// Asks for the kBytes that lie kPrefetchBytes beyond p. (A plain loop: GCC drops
// prefetches from functions that it does not inline at once.)
template <int kBytes>
[[gnu::always_inline]] static inline void Prefetch(const std::byte* p) {
  constexpr int kToRead = 0, kSecondCache = 2;
  for (int line = 0; line < (kBytes + 63) / 64; ++line) {
    __builtin_prefetch(p + kPrefetchBytes + 64 * line, kToRead, kSecondCache);
  }
}

// How weights that stay floats are stored in a tile.
enum class FloatForm { kF32, kF16, kBF16 };

// The part of a product that one call of a tile function computes: n_rows rows, at
// most as many as the function is made for, by the first `lanes` (1..16) outputs of a
// tile. `row` is a multiple of kPanelRows.
struct TileWork {
  const PackedMatrix& w;
  const ActivationRows& x;
  const std::byte* tile;
  int64_t row;
  int n_rows;
  int lanes;
  float* out;  // the first row and lane
  int64_t out_stride;
};

// Row r of the work's activations; for rows that are missing, one that exists.
static inline const float* FloatRow(const TileWork& work, int r) {
  const int64_t row = work.row + (r < work.n_rows ? r : work.n_rows - 1);
  return work.x.values + row * work.x.values_stride;
}

using TileFunction = void (*)(const TileWork& work);

// The functions for 1 row and for up to 2, 4, 6, ... rows: few sessions, experts and guesses
// bring any number, and a row that is missing costs as much as one that is there. By 12 the
// decoding of a tile is paid; float weights have nothing to decode and end with 8.
struct TileFunctions {
  TileFunction of[7];
};

// The function for the next of `left` rows, and how many it takes.
static inline TileFunction FunctionFor(const TileFunctions& functions, int64_t left, int* n_rows) {
  const int most = functions.of[6] != nullptr ? 12 : 8;
  *n_rows = left < most ? static_cast<int>(left) : most;
  return *n_rows == 1 ? functions.of[0] : functions.of[(*n_rows + 1) / 2];
}

static constexpr int kPassRows = 24;  // whole calls of either most

// Activations of one pass over the tiles stay about below this, to live in L2.
static constexpr int64_t kPassActivationBytes = 512 << 10;

static inline int64_t RowsPerPass(const PackedMatrix& w) {
  const int64_t row_bytes = IsInt8(FormatOf(w.type))
                                ? w.n_in / kBlock * sizeof(ActivationBlock) / kPanelRows
                                : w.n_in * sizeof(float);
  const int64_t rows = kPassActivationBytes / (row_bytes + 1) / kPassRows * kPassRows;
  return rows < kPassRows ? kPassRows : rows;
}

static inline void DriveTiles(const TileFunctions& functions, const PackedMatrix& w,
                              const ActivationRows& x, int64_t n_rows, int64_t tile_begin,
                              int64_t tile_end, float* out, int64_t out_stride) {
  const int64_t tile_bytes = PackedTileBytes(w.type, w.n_in);
  const int64_t rows_per_pass = RowsPerPass(w);
  for (int64_t pass = 0; pass < n_rows; pass += rows_per_pass) {
    const int64_t pass_end = n_rows - pass < rows_per_pass ? n_rows : pass + rows_per_pass;
    for (int64_t t = tile_begin; t < tile_end; ++t) {
      const int64_t left = w.n_out - t * kLanes;
      TileWork work = {w, x, w.tiles + t * tile_bytes, 0, 0, kLanes, nullptr, out_stride};
      if (left < kLanes) work.lanes = static_cast<int>(left);
      for (int64_t row = pass; row < pass_end; row += work.n_rows) {
        work.row = row;
        work.out = out + row * out_stride + t * kLanes;
        FunctionFor(functions, pass_end - row, &work.n_rows)(work);
      }
    }
  }
}

}  // namespace weft::matmul_internal

#endif  // WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_DRIVE_H_
