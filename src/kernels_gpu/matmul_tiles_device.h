// Products on tiles of bytes, in the order of sums of matmul_device.h.
//
// A block of threads has 16 outputs and up to 32 rows; its warps take chunks of 128 inputs in
// turn, each for all of these, and chunk sums meet in shared memory, where they are added in
// order. The outputs are the tiles' rows, the rows of activations their columns.
#ifndef WEFT_KERNELS_GPU_MATMUL_TILES_DEVICE_H_
#define WEFT_KERNELS_GPU_MATMUL_TILES_DEVICE_H_

#include "kernels_gpu/matmul_device.h"

namespace weft::device {

constexpr int kTileColumns = 8;
constexpr int kTilesBeside = kTileRows / kTileColumns;
constexpr int kTileWarps = kMatmulThreads / 32;
// From row to row of chunk sums in shared memory: lanes that write together meet no bank twice.
constexpr int kTileStride = kTileOutputs + 4;

// What a lane does for the tiles of its warp.
template <typename Form>
struct TileLane {
  const MatmulArgs& a;
  int g, k;            // lane / 4, lane % 4
  int n_beside;        // tiles side by side that have rows
  int64_t outputs[2];  // rows of the matrix: g and g + 8 of the tile
  // Rows of the activations, of each tile: that it gives bytes of, and that it has sums of.
  int given[kTilesBeside], summed[kTilesBeside][2];

  WEFT_DEVICE TileLane(const MatmulArgs& args, const MatmulRows& rows) : a(args) {
    const int lane = ThreadIndex() % 32;
    g = lane / 4;
    k = lane % 4;
    n_beside = CeilDiv(rows.count, kTileColumns);
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      // An output that there is not computes the last one's sums, for nobody.
      const int output = Min(BlockX() * kTileOutputs + g + 8 * i, a.matrix.n_out - 1);
      outputs[i] = static_cast<int64_t>(rows.member) * a.matrix.n_out + output;
    }
    WEFT_UNROLL
    for (int j = 0; j < kTilesBeside; ++j) {
      given[j] = RowAt(rows, kTileColumns * j + g);
      summed[j][0] = RowAt(rows, kTileColumns * j + 2 * k);
      summed[j][1] = RowAt(rows, kTileColumns * j + 2 * k + 1);
    }
  }
  WEFT_DEVICE int RowAt(const MatmulRows& rows, int r) const {
    return BlockZ() * a.member_rows + rows.SourceOf(a, Min(r, rows.count - 1));
  }

  // Adds a chunk to the sums of all tiles. All lanes of a warp call it for the same one.
  WEFT_DEVICE void AddChunk(int chunk, float (*acc)[4]) const {
    constexpr int kUnits = kChunkInputs / kBlockInputs;
    const int n_units = a.matrix.n_in / kBlockInputs;
    for (int unit = 0; unit < kUnits && chunk * kUnits + unit < n_units; ++unit) {
      const UnitAddress<Form> first(a.matrix, outputs[0], chunk, unit);
      const UnitAddress<Form> second(a.matrix, outputs[1], chunk, unit);
      const UnitScales scales[2] = {ScalesOf<Form>(first.meta, first.super),
                                    ScalesOf<Form>(second.meta, second.super)};
      const uint32_t levels[4] = {GroupOf<Form>(first.words, k), GroupOf<Form>(second.words, k),
                                  GroupOf<Form>(first.words, k + 4),
                                  GroupOf<Form>(second.words, k + 4)};
      WEFT_UNROLL
      for (int j = 0; j < kTilesBeside; ++j) {
        if (j >= n_beside) continue;
        AddTile(j, chunk * kUnits + unit, n_units, levels, scales, acc[j]);
      }
    }
  }

 private:
  WEFT_DEVICE void AddTile(int j, int block, int n_units, const uint32_t* levels,
                           const UnitScales* scales, float* acc) const {
    const auto* const bytes = reinterpret_cast<const uint32_t*>(
        a.q.q + (static_cast<int64_t>(given[j]) * n_units + block) * kBlockInputs);
    const uint32_t b0 = bytes[k], b1 = bytes[k + 4];
    int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
    if constexpr (Form::kHalves) {
      MultiplyTile16(levels[0], levels[1], b0, low);
      MultiplyTile16(levels[2], levels[3], b1, high);
    } else {
      MultiplyTile32(levels[0], levels[1], levels[2], levels[3], b0, b1, low);
    }
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t at = static_cast<int64_t>(summed[j][i % 2]) * n_units + block;
      const int dot[2] = {low[i], high[i]};
      AddDots<Form>(dot, a.q.sums[at], a.q.scales[at], scales[i / 2], &acc[i]);
    }
  }
};

template <typename Form>
WEFT_DEVICE void MultiplyTiles(const MatmulArgs& a) {
  WEFT_SHARED(float, parts, kTileWarps* kTileRows* kTileStride);
  MatmulRows rows;
  if (!FindRows<kTileRows>(a, &rows)) return;
  const int t = ThreadIndex(), warp = t / 32;
  const TileLane<Form> lane(a, rows);
  const int n_chunks = CeilDiv(a.matrix.n_in, kChunkInputs);
  constexpr int kEach = kTileOutputs * kTileRows / kMatmulThreads;
  float totals[kEach] = {};
  for (int base = 0; base < n_chunks; base += kTileWarps) {
    float acc[kTilesBeside][4] = {};
    if (base + warp < n_chunks) lane.AddChunk(base + warp, acc);
    if (base > 0) Barrier();
    WEFT_UNROLL
    for (int j = 0; j < kTilesBeside; ++j) {
      if (j >= lane.n_beside) continue;
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = kTileColumns * j + 2 * lane.k + i % 2;
        parts[(warp * kTileRows + row) * kTileStride + lane.g + 8 * (i / 2)] = acc[j][i];
      }
    }
    Barrier();
    const int n_parts = Min(kTileWarps, n_chunks - base);
    WEFT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int pair = t + i * kMatmulThreads, row = pair / kTileOutputs;
      if (row >= rows.count) continue;
      for (int part = 0; part < n_parts; ++part) {
        totals[i] = totals[i] + parts[(part * kTileRows + row) * kTileStride + pair % kTileOutputs];
      }
    }
  }
  WEFT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int pair = t + i * kMatmulThreads, row = pair / kTileOutputs;
    const int output = BlockX() * kTileOutputs + pair % kTileOutputs;
    if (row < rows.count && output < a.matrix.n_out) PutOutput(a, rows, row, output, totals[i]);
  }
}

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_MATMUL_TILES_DEVICE_H_
