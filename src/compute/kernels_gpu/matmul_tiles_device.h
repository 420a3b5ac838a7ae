// Products with tensor-core tiles, in the order of sums of matmul_device.h.
//
// A warp multiplies a band of 16 outputs (the tiles' rows) by up to 8 or 32 rows of activations
// (the tiles' columns), a chunk of 128 inputs at a time. With few rows, the four warps of a block
// take the chunks of one band in turn; chunk sums are exchanged through shared memory and added in
// order. With many rows, each warp has its own band, and its sums stay in registers.
//
// Activations are in shared memory, a pass of four chunks at a time; those of the next pass are
// copied while one is computed. Weights are loaded directly by the lanes that feed them to the
// tiles.
#ifndef WEFT_COMPUTE_KERNELS_GPU_MATMUL_TILES_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_MATMUL_TILES_DEVICE_H_

#include "compute/kernels_gpu/matmul_device.h"

namespace weft::device {

constexpr int kTileColumns = 8;
constexpr int kTileWarps = kMatmulThreads / 32;
constexpr int kTilePassChunks = 4;
constexpr int kTilePassUnits = kTilePassChunks * kChunkUnits;
// Stride of a pass's rows in shared memory, without bank conflicts between lanes that read
// together.
constexpr int kTileRowWords = kTilePassUnits * kBlockInputs / 4 + 4;
constexpr int kTileRowUnits = kTilePassUnits + 4;
// The same for chunk sums.
constexpr int kTilePartWords = kBandOutputs + 4;

// Layout of a block's shared memory, in words.
template <int kMaxRows, int kBands>
struct TileRoom {
  static constexpr int kQ = 2 * kMaxRows * kTileRowWords;
  static constexpr int kUnits = 2 * kMaxRows * kTileRowUnits;
  static constexpr int kParts = kBands > 1 ? 0 : 2 * kTileWarps* kMaxRows* kTilePartWords;
  static constexpr int kBytes = 4 * (kQ + 2 * kUnits + kParts);
};

// A lane's part of a unit's words: groups k and k + 4, where k is lane % 4.
template <typename Form>
struct LaneUnit {
  static constexpr bool kFour = Form::kHasFour, kTwo = Form::kHasTwo, kSingle = Form::kHasOne;
  uint32_t nibbles = 0, pairs[2] = {0, 0}, bits = 0;  // with 8 bits, both groups are in `pairs`

  WEFT_DEVICE void Fetch(const UnitAddress<Form>& at, int k) {
    if constexpr (Form::kBits == 8) {
      pairs[0] = Load(at.words + k);
      pairs[1] = Load(at.rest + k);
    }
    if constexpr (kFour) nibbles = Load(at.words + k);
    const uint32_t* const planes = kFour ? at.rest : at.words;
    if constexpr (kTwo && Form::kBits == 3) {
      pairs[0] = Load(planes);
      pairs[1] = Load(planes + 1);
    } else if constexpr (kTwo) {
      LoadWords<2>(planes, pairs);
    }
    if constexpr (kSingle) bits = Load(planes + (kTwo ? 2 : 0));
  }
  // Group k; with i = 1, group k + 4.
  WEFT_DEVICE uint32_t Group(int i, int k) const {
    if constexpr (Form::kBits == 8) return pairs[i];
    uint32_t levels = 0;
    [[maybe_unused]] int shift = 0;
    if constexpr (kFour) {
      levels = (nibbles >> (4 * i)) & 0x0F0F0F0Fu;
      shift = 4;
    }
    if constexpr (kTwo) {
      levels |= ((pairs[i] >> (2 * k)) & 0x03030303u) << shift;
      shift += 2;
    }
    if constexpr (kSingle) levels |= ((bits >> (k + 4 * i)) & 0x01010101u) << shift;
    if constexpr (Form::kTable != Levels::kLinear) return LookUp<Form::kTable>(levels);
    return levels;
  }
};

// A lane's part of a chunk of a band's weights: outputs g and g + 8. Units beyond the rows' end
// repeat the chunk's first unit, and are not used.
template <typename Form>
struct TileWeights {
  LaneUnit<Form> units[2][kChunkUnits];
  uint8_t meta[2][kChunkUnits][Form::kMetaBytes];
  uint16_t super[2][2];

  WEFT_DEVICE void Fetch(const MatrixView& m, int64_t band_row, int chunk, int n_units) {
    const UnitAddress<Form> at(m, band_row + ThreadIndex() % 32 / 4, chunk * kChunkUnits);
    if (n_units >= kChunkUnits) {
      FetchUnits<true>(at, n_units);
    } else {
      FetchUnits<false>(at, n_units);
    }
  }

 private:
  // kWhole: all units are there, at constant distances.
  template <bool kWhole>
  WEFT_DEVICE void FetchUnits(const UnitAddress<Form>& first, int n_units) {
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      WEFT_UNROLL
      for (int i = 0; i < 2; ++i) {
        const UnitAddress<Form> at = first.After(kWhole || unit < n_units ? unit : 0, 8 * i);
        units[i][unit].Fetch(at, ThreadIndex() % 4);
        LoadMeta<Form::kMetaBytes>(at.meta, meta[i][unit]);
        if (unit > 0) continue;
        WEFT_UNROLL
        for (int s = 0; s < Form::kSuperHalves; ++s) super[i][s] = Load(at.super + s);
      }
    }
  }
};

// The same, decoded: a lane's parts of two outputs' levels, as the tiles take them, and scales.
template <typename Form>
struct TileLevels {
  uint32_t levels[kChunkUnits][2][2];
  UnitScales scales[kChunkUnits][2];

  WEFT_DEVICE explicit TileLevels(const TileWeights<Form>& weights) {
    const int k = ThreadIndex() % 4;
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      WEFT_UNROLL
      for (int i = 0; i < 2; ++i) {
        levels[unit][i][0] = weights.units[i][unit].Group(0, k);
        levels[unit][i][1] = weights.units[i][unit].Group(1, k);
        scales[unit][i] = ScalesOf<Form>(weights.meta[i][unit], weights.super[i]);
      }
    }
  }
};

// The activations of two passes, in shared memory (double buffering).
template <int kMaxRows, typename Bytes, typename Scales, typename Sums>
struct TileInputs {
  Bytes& q;
  Scales& scales;
  Sums& sums;

  // Begins to copy units from `first` on of all rows to one half of the memory.
  WEFT_DEVICE void Copy(const MatmulArgs& a, const MatmulRows& rows, int n_units, int first,
                        int half) const {
    const int t = ThreadIndex(), n = Min(kTilePassUnits, n_units - first);
    // 16 bytes per lane: one row per warp.
    for (int r = t / 32; r < rows.count; r += kTileWarps) {
      if (t % 32 >= 2 * n) continue;
      const int64_t from = SourceOf(a, rows, r) * n_units + first;
      CopyWords4(q, (half * kMaxRows + r) * kTileRowWords + t % 32 * 4,
                 a.q.q + from * kBlockInputs + t % 32 * 16);
    }
    if (n_units % 4 == 0) {
      // Eight lanes per row: each copies four units' scales, or sums.
      for (int r = t / 8; r < rows.count; r += kMatmulThreads / 8) {
        const int unit = t % 4 * 4, to = (half * kMaxRows + r) * kTileRowUnits + unit;
        if (unit >= n) continue;
        const int64_t from = SourceOf(a, rows, r) * n_units + first + unit;
        if (t % 8 < 4) {
          CopyWords4(scales, to, a.q.scales + from);
        } else {
          CopyWords4(sums, to, a.q.sums + from);
        }
      }
    }
    CommitCopies();
    if (n_units % 4 == 0) return;
    for (int r = t / kTilePassUnits; r < rows.count; r += kMatmulThreads / kTilePassUnits) {
      const int unit = t % kTilePassUnits, to = (half * kMaxRows + r) * kTileRowUnits + unit;
      if (unit >= n) continue;
      const int64_t from = SourceOf(a, rows, r) * n_units + first + unit;
      scales[to] = Load(a.q.scales + from);
      sums[to] = static_cast<uint32_t>(Load(a.q.sums + from));
    }
  }
  WEFT_DEVICE static int64_t SourceOf(const MatmulArgs& a, const MatmulRows& rows, int r) {
    return static_cast<int64_t>(BlockZ()) * a.member_rows + rows.SourceOf(a, r);
  }

  // Adds chunk `chunk` of the pass in `half` to a tile's sums; the tile's columns are the rows from
  // `first` on. kWhole: the chunk has all its units.
  template <typename Form, bool kWhole>
  WEFT_DEVICE void AddTile(const TileLevels<Form>& weights, int half, int chunk, int first,
                           int n_rows, int n_units, float* acc) const {
    const int g = ThreadIndex() % 32 / 4, k = ThreadIndex() % 4;
    const auto row_at = [&](int r) { return half * kMaxRows + Min(first + r, n_rows - 1); };
    const int bytes = row_at(g) * kTileRowWords + chunk * kChunkUnits * 8;
    Words4 its_scales[2], its_sums[2];
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = row_at(2 * k + i) * kTileRowUnits + chunk * kChunkUnits;
      its_scales[i] = ReadWords4(scales, at);
      its_sums[i] = ReadWords4(sums, at);
    }
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      if (!kWhole && unit >= n_units) continue;
      const uint32_t b0 = q[bytes + unit * 8 + k], b1 = q[bytes + unit * 8 + k + 4];
      int32_t low[4], high[4];
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto its = static_cast<int32_t>(its_sums[i % 2].w[unit]);
        low[i] = FirstDot<Form>(its, 0);
        high[i] = FirstDot<Form>(its, 1);
      }
      const auto& levels = weights.levels[unit];
      if constexpr (Form::kHalves) {
        MultiplyTile16(levels[0][0], levels[1][0], b0, low);
        MultiplyTile16(levels[0][1], levels[1][1], b1, high);
      } else {
        MultiplyTile32(levels[0][0], levels[1][0], levels[0][1], levels[1][1], b0, b1, low);
      }
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int32_t dot[2] = {low[i], high[i]};
        AddDots<Form>(dot, static_cast<int32_t>(its_sums[i % 2].w[unit]),
                      FloatOf(its_scales[i % 2].w[unit]), weights.scales[unit][i / 2], &acc[i]);
      }
    }
  }
  template <typename Form>
  WEFT_DEVICE void AddTiles(const TileWeights<Form>& weights, int half, int chunk, int n_rows,
                            int n_units, float (*acc)[4]) const {
    const TileLevels<Form> levels(weights);
    WEFT_UNROLL
    for (int j = 0; j < kMaxRows / kTileColumns; ++j) {
      if (j * kTileColumns >= n_rows) continue;
      if (n_units == kChunkUnits) {
        AddTile<Form, true>(levels, half, chunk, j * kTileColumns, n_rows, n_units, acc[j]);
      } else {
        AddTile<Form, false>(levels, half, chunk, j * kTileColumns, n_rows, n_units, acc[j]);
      }
    }
  }
};

// Few rows: the warps of a block take the chunks of its band in turn.
template <typename Form, int kMaxRows, typename Inputs, typename Parts>
WEFT_DEVICE void MultiplyBand(const MatmulArgs& a, const MatmulRows& rows, const Inputs& x,
                              const Parts& parts) {
  constexpr int kTiles = kMaxRows / kTileColumns;
  constexpr int kEach = kBandOutputs * kMaxRows / kMatmulThreads;
  const int t = ThreadIndex(), warp = t / 32, g = t % 32 / 4, k = t % 4;
  const int n_units = a.matrix.n_in / kBlockInputs, n_chunks = CeilDiv(n_units, kChunkUnits);
  const int n_passes = CeilDiv(n_chunks, kTilePassChunks);
  const int64_t band_row = a.matrix.RowOf(rows.member, BlockX() * kBandOutputs);
  float totals[kEach] = {};
  // Adds a pass's chunk sums in order; thread t has the pairs t, t + kMatmulThreads ... of rows and
  // outputs.
  const auto add_parts = [&](int pass) {
    const int n_parts = Min(kTilePassChunks, n_chunks - pass * kTilePassChunks);
    WEFT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int pair = t + i * kMatmulThreads, row = pair / kBandOutputs;
      if (row >= rows.count) continue;
      for (int part = 0; part < n_parts; ++part) {
        const int at = (pass % 2 * kTileWarps + part) * kMaxRows + row;
        totals[i] = totals[i] + parts[at * kTilePartWords + pair % kBandOutputs];
      }
    }
  };
  x.Copy(a, rows, n_units, 0, 0);
  for (int pass = 0; pass < n_passes; ++pass) {
    const int chunk = pass * kTilePassChunks + warp;
    const int its_units = Min(kChunkUnits, n_units - chunk * kChunkUnits);
    TileWeights<Form> weights;
    weights.Fetch(a.matrix, band_row, Min(chunk, n_chunks - 1), its_units);
    WaitCopies<0>();
    Barrier();
    if (pass + 1 < n_passes) {
      x.Copy(a, rows, n_units, (pass + 1) * kTilePassUnits, (pass + 1) % 2);
    }
    if (pass > 0) add_parts(pass - 1);
    if (its_units <= 0) continue;
    float acc[kTiles][4] = {};
    x.template AddTiles<Form>(weights, pass % 2, warp, rows.count, its_units, acc);
    WEFT_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      if (j * kTileColumns >= rows.count) continue;
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = kTileColumns * j + 2 * k + i % 2;
        const int at = (pass % 2 * kTileWarps + warp) * kMaxRows + row;
        parts[at * kTilePartWords + g + 8 * (i / 2)] = acc[j][i];
      }
    }
  }
  Barrier();
  add_parts(n_passes - 1);
  WEFT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int pair = t + i * kMatmulThreads, row = pair / kBandOutputs;
    const int output = BlockX() * kBandOutputs + pair % kBandOutputs;
    if (row < rows.count && output < a.matrix.n_out) PutOutput(a, rows, row, output, totals[i]);
  }
  ActivateOutputs(a, rows, BlockX() * kBandOutputs, kBandOutputs, x.sums);
}

// Many rows: each warp has its own band.
template <typename Form, int kMaxRows, typename Inputs>
WEFT_DEVICE void MultiplyBands(const MatmulArgs& a, const MatmulRows& rows, const Inputs& x) {
  constexpr int kTiles = kMaxRows / kTileColumns;
  const int t = ThreadIndex(), g = t % 32 / 4, k = t % 4;
  const int n_units = a.matrix.n_in / kBlockInputs, n_chunks = CeilDiv(n_units, kChunkUnits);
  const int n_passes = CeilDiv(n_chunks, kTilePassChunks);
  const int n_bands = CeilDiv(a.matrix.n_out, kBandOutputs), band = BlockX() * kTileWarps + t / 32;
  // A warp beyond the last band repeats the last one, and its sums are not used.
  const int64_t band_row = a.matrix.RowOf(rows.member, Min(band, n_bands - 1) * kBandOutputs);
  const auto units_of = [&](int chunk) { return Min(kChunkUnits, n_units - chunk * kChunkUnits); };
  float totals[kTiles][4] = {};
  x.Copy(a, rows, n_units, 0, 0);
  TileWeights<Form> weights[2];
  weights[0].Fetch(a.matrix, band_row, 0, units_of(0));
  for (int pass = 0; pass < n_passes; ++pass) {
    WaitCopies<0>();
    Barrier();
    if (pass + 1 < n_passes) {
      x.Copy(a, rows, n_units, (pass + 1) * kTilePassUnits, (pass + 1) % 2);
    }
    WEFT_UNROLL
    for (int i = 0; i < kTilePassChunks; ++i) {
      const int chunk = pass * kTilePassChunks + i;
      if (chunk + 1 < n_chunks) {
        weights[(i + 1) % 2].Fetch(a.matrix, band_row, chunk + 1, units_of(chunk + 1));
      }
      if (chunk >= n_chunks) continue;
      float acc[kTiles][4] = {};
      x.template AddTiles<Form>(weights[i % 2], pass % 2, i, rows.count, units_of(chunk), acc);
      WEFT_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        WEFT_UNROLL
        for (int s = 0; s < 4; ++s) totals[j][s] = totals[j][s] + acc[j][s];
      }
    }
  }
  WEFT_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = kTileColumns * j + 2 * k + i % 2;
      const int output = band * kBandOutputs + g + 8 * (i / 2);
      if (row < rows.count && output < a.matrix.n_out)
        PutOutput(a, rows, row, output, totals[j][i]);
    }
  }
  constexpr int kOutputs = kTileBands * kBandOutputs;
  ActivateOutputs(a, rows, BlockX() * kOutputs, kOutputs, x.sums);
}

template <typename Form, int kMaxRows, int kBands>
WEFT_DEVICE void MultiplyTiles(const MatmulArgs& a) {
  using Room = TileRoom<kMaxRows, kBands>;
  WEFT_DYNAMIC_SHARED(uint32_t, q, 0, Room::kQ);
  WEFT_DYNAMIC_SHARED(float, scales, Room::kQ, Room::kUnits);
  WEFT_DYNAMIC_SHARED(uint32_t, sums, Room::kQ + Room::kUnits, Room::kUnits);
  MatmulRows rows;
  if (!FindRows<kMaxRows>(a, &rows)) return;
  const TileInputs<kMaxRows, decltype(q), decltype(scales), decltype(sums)> x = {q, scales, sums};
  if constexpr (kBands > 1) {
    MultiplyBands<Form, kMaxRows>(a, rows, x);
  } else {
    WEFT_DYNAMIC_SHARED(float, parts, Room::kQ + 2 * Room::kUnits, Room::kParts);
    MultiplyBand<Form, kMaxRows>(a, rows, x, parts);
  }
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_MATMUL_TILES_DEVICE_H_
