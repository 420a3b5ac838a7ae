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
constexpr int kTilePassSupers = kTilePassChunks * kChunkInputs / kSuperInputs;
static_assert(kTilePassSupers * kSuperInputs == kTilePassChunks * kChunkInputs);
// Stride of a pass's rows in shared memory, without bank conflicts between lanes that read
// together.
constexpr int kTileRowWords = kTilePassUnits * kBlockInputs / 4 + 4;
constexpr int kTilePassMeta = kTilePassChunks * kFourMeta;
constexpr int kTileRowMeta = kTilePassMeta + 4;
// The same for chunk sums.
constexpr int kTilePartWords = kBandOutputs + 4;

// Layout of a block's shared memory, in words.
template <int kMaxRows, int kBands>
struct TileRoom {
  static constexpr int kQ = 2 * kMaxRows * kTileRowWords;
  static constexpr int kMeta = 2 * kMaxRows * kTileRowMeta;
  static constexpr int kParts = kBands > 1 ? 0 : 2 * kTileWarps* kMaxRows* kTilePartWords;
  static constexpr int kBytes = 4 * (kQ + kMeta + kParts);
};

// A lane's part of a chunk of an output: of each unit groups k and k + 4, where k is lane % 4.
template <typename Form>
struct LaneWeights {
  static constexpr bool kFour = Form::kHasFour, kTwo = Form::kHasTwo, kSingle = Form::kHasOne;
  Words4 nibbles, pairs[2], bits;  // with 8 bits, both groups are in `pairs`
  ChunkScales<Form> scales;

  WEFT_DEVICE void Fetch(const ChunkAddress<Form>& at, int k) {
    constexpr int kPlanes = kFour ? 4 : 0;
    if constexpr (Form::kBits == 8) {
      pairs[0] = at.Levels(k);
      pairs[1] = at.Levels(k + 4);
    }
    if constexpr (kFour) nibbles = at.Levels(k);
    if constexpr (kTwo) {
      pairs[0] = at.Levels(kPlanes);
      pairs[1] = at.Levels(kPlanes + 1);
    }
    if constexpr (kSingle) bits = at.Levels(kPlanes + (kTwo ? 2 : 0));
    scales = at.LoadScales();
  }
  // Group k of a unit; with i = 1, group k + 4.
  WEFT_DEVICE uint32_t Group(int unit, int i, int k) const {
    if constexpr (Form::kBits == 8) return pairs[i].w[unit];
    uint32_t levels = 0;
    [[maybe_unused]] int shift = 0;
    if constexpr (kFour) {
      levels = (nibbles.w[unit] >> (4 * i)) & 0x0F0F0F0Fu;
      shift = 4;
    }
    if constexpr (kTwo) {
      levels |= ((pairs[i].w[unit] >> (2 * k)) & 0x03030303u) << shift;
      shift += 2;
    }
    if constexpr (kSingle) levels |= ((bits.w[unit] >> (k + 4 * i)) & 0x01010101u) << shift;
    if constexpr (Form::kTable != Levels::kLinear) return LookUp<Form::kTable>(levels);
    return levels;
  }
};

// A lane's part of a chunk of a band's weights: outputs g and g + 8.
template <typename Form>
struct TileWeights {
  LaneWeights<Form> of[2];

  // Where the lane's part of a chunk is.
  WEFT_DEVICE static ChunkAddress<Form> Find(const MatrixView& m, int64_t band_row, int chunk) {
    return ChunkAddress<Form>(m, band_row + ThreadIndex() % 32 / 4, chunk);
  }
  WEFT_DEVICE void Fetch(const ChunkAddress<Form>& at) {
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) of[i].Fetch(at.After(0, 8 * i), ThreadIndex() % 4);
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
        levels[unit][i][0] = weights.of[i].Group(unit, 0, k);
        levels[unit][i][1] = weights.of[i].Group(unit, 1, k);
        scales[unit][i] = weights.of[i].scales.Of(unit);
      }
    }
  }
};

// The activations of two passes, in shared memory (double buffering).
template <typename Form, int kMaxRows, typename Bytes, typename Meta>
struct TileInputs {
  // Rows of which a thread copies 16 bytes of each pass, and of which it copies four words of meta.
  static constexpr int kByteRows = kMaxRows / kTileWarps;
  static constexpr int kMetaLanes = kTilePassMeta / 4;
  static constexpr int kMetaRowsAtOnce = kMatmulThreads / kMetaLanes;
  static constexpr int kMetaRows = CeilDiv(kMaxRows, kMetaRowsAtOnce);

  Bytes& q;
  Meta& meta;
  int n_rows, n_units;
  int n_left;  // units that are not yet copied
  const int8_t* q_from;
  const uint32_t* meta_from;
  uint32_t byte_rows[kByteRows], meta_rows[kMetaRows];  // where they begin, in units and words

  WEFT_DEVICE TileInputs(const MatmulArgs& a, const MatmulRows& rows, Bytes& its_q, Meta& its_meta)
      : q(its_q),
        meta(its_meta),
        n_rows(rows.count),
        n_units(a.matrix.n_in / kBlockInputs),
        n_left(n_units),
        q_from(a.q.q + ThreadIndex() % 32 * 16),
        meta_from(a.q.meta + FourMeta<Form>::From(ThreadIndex() % kMetaLanes * 4)) {
    const auto source = [&](int r) {
      return static_cast<uint32_t>(BlockZ() * a.member_rows + rows.SourceOf(a, Min(r, n_rows - 1)));
    };
    WEFT_UNROLL
    for (int i = 0; i < kByteRows; ++i) {
      byte_rows[i] = source(ByteRow(i)) * static_cast<uint32_t>(n_units);
    }
    WEFT_UNROLL
    for (int i = 0; i < kMetaRows; ++i) {
      meta_rows[i] = source(MetaRow(i)) * static_cast<uint32_t>(MetaWords(n_units));
    }
  }

  // Begins to copy the units of the next pass of all rows to half `half` of the memory.
  WEFT_DEVICE void CopyNext(int half) {
    const int lane = ThreadIndex() % 32, meta_lane = lane % kMetaLanes;
    const int to = (half * kMaxRows + ByteRow(0)) * kTileRowWords + lane * 4;
    const int meta_to = (half * kMaxRows + MetaRow(0)) * kTileRowMeta + meta_lane * 4;
    WEFT_UNROLL
    for (int i = 0; i < kByteRows; ++i) {
      if (lane / 2 >= n_left || ByteRow(i) >= n_rows) continue;
      CopyWords4(q, to + i * kTileWarps * kTileRowWords,
                 q_from + static_cast<uint64_t>(byte_rows[i]) * kBlockInputs);
    }
    WEFT_UNROLL
    for (int i = 0; i < kMetaRows; ++i) {
      if (meta_lane / 2 * kChunkUnits >= n_left || MetaRow(i) >= n_rows) continue;
      CopyWords4(meta, meta_to + i * kMetaRowsAtOnce * kTileRowMeta, meta_from + meta_rows[i]);
    }
    CommitCopies();
    n_left -= kTilePassUnits;
    q_from += kTilePassUnits * kBlockInputs;
    meta_from += kTilePassChunks * kMetaWords;
  }

  // Adds chunk `chunk` of the pass in `half` to a tile's sums; the tile's columns are the rows from
  // `first` on. kWhole: the chunk has all its units.
  template <bool kWhole>
  WEFT_DEVICE void AddTile(const TileLevels<Form>& weights, int half, int chunk, int first,
                           int its_units, float* acc) const {
    const int g = ThreadIndex() % 32 / 4, k = ThreadIndex() % 4;
    const auto row_at = [&](int r) { return half * kMaxRows + Min(first + r, n_rows - 1); };
    const int bytes = row_at(g) * kTileRowWords + chunk * kChunkUnits * 8;
    FourMeta<Form> four[2];
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      four[i].Read(meta, row_at(2 * k + i) * kTileRowMeta + chunk * kFourMeta);
    }
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      if (!kWhole && unit >= its_units) continue;
      const uint32_t b0 = q[bytes + unit * 8 + k], b1 = q[bytes + unit * 8 + k + 4];
      const BlockMeta x[2] = {four[0].Of(unit), four[1].Of(unit)};
      int32_t low[4], high[4];
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        low[i] = FirstDot<Form>(x[i % 2], 0);
        high[i] = FirstDot<Form>(x[i % 2], 1);
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
        AddDots<Form>(dot, x[i % 2], weights.scales[unit][i / 2], &acc[i]);
      }
    }
  }
  // The same for the tiles of all rows; `its_units` are the chunk's.
  template <bool kWhole>
  WEFT_DEVICE void AddTiles(const TileWeights<Form>& weights, int half, int chunk, int its_units,
                            float (*acc)[4]) const {
    const TileLevels<Form> levels(weights);
    WEFT_UNROLL
    for (int j = 0; j < kMaxRows / kTileColumns; ++j) {
      if (j > 0 && j * kTileColumns >= n_rows) continue;
      AddTile<kWhole>(levels, half, chunk, j * kTileColumns, its_units, acc[j]);
    }
  }

 private:
  WEFT_DEVICE static int ByteRow(int i) { return ThreadIndex() / 32 + i * kTileWarps; }
  WEFT_DEVICE static int MetaRow(int i) { return ThreadIndex() / kMetaLanes + i * kMetaRowsAtOnce; }
};

// Few rows: the warps of a block take the chunks of its band in turn. A shorter last chunk is added
// after the loop, which handles only whole chunks.
template <typename Form, int kMaxRows, typename Inputs, typename Parts>
WEFT_DEVICE void MultiplyBand(const MatmulArgs& a, const MatmulRows& rows, Inputs& x,
                              const Parts& parts) {
  constexpr int kTiles = kMaxRows / kTileColumns;
  constexpr int kEach = kBandOutputs * kMaxRows / kMatmulThreads;
  const int t = ThreadIndex(), warp = t / 32, g = t % 32 / 4, k = t % 4;
  const int n_whole = x.n_units / kChunkUnits, n_chunks = CeilDiv(x.n_units, kChunkUnits);
  const int n_passes = CeilDiv(n_chunks, kTilePassChunks);
  const int64_t band_row = a.matrix.RowOf(rows.member, BlockX() * kBandOutputs);
  float totals[kEach] = {};
  // Adds chunk sums of a pass, which are in one half of `parts`, in order; thread t has the pairs
  // t, t + kMatmulThreads ... of rows and outputs.
  const auto add_parts = [&](int half, int n_parts) {
    WEFT_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int pair = t + i * kMatmulThreads, row = pair / kBandOutputs;
      if (row >= rows.count) continue;
      WEFT_UNROLL
      for (int part = 0; part < kTilePassChunks; ++part) {
        if (part >= n_parts) continue;
        const int at = (half * kTileWarps + part) * kMaxRows + row;
        totals[i] = totals[i] + parts[at * kTilePartWords + pair % kBandOutputs];
      }
    }
  };
  const auto put_parts = [&](int half, const float(*acc)[4]) {
    WEFT_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      if (j > 0 && j * kTileColumns >= rows.count) continue;
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = kTileColumns * j + 2 * k + i % 2;
        const int at = (half * kTileWarps + warp) * kMaxRows + row;
        parts[at * kTilePartWords + g + 8 * (i / 2)] = acc[j][i];
      }
    }
  };
  ChunkAddress<Form> at = TileWeights<Form>::Find(a.matrix, band_row, warp);
  x.CopyNext(0);
  for (int pass = 0; pass < n_passes; ++pass) {
    const int half = pass & 1;
    const bool its = pass * kTilePassChunks + warp < n_whole;
    TileWeights<Form> weights;
    if (its) weights.Fetch(at);
    at = at.After(kTilePassChunks, 0, kTilePassSupers);
    WaitCopies<0>();
    Barrier();
    if (pass + 1 < n_passes) x.CopyNext(half ^ 1);
    if (pass > 0) add_parts(half ^ 1, kTilePassChunks);
    if (!its) continue;
    float acc[kTiles][4] = {};
    x.template AddTiles<true>(weights, half, warp, kChunkUnits, acc);
    put_parts(half, acc);
  }
  const int last = (n_passes - 1) & 1;
  if (n_whole < n_chunks && warp == n_whole % kTilePassChunks) {
    const int its_units = x.n_units - n_whole * kChunkUnits;
    TileWeights<Form> weights;
    weights.Fetch(TileWeights<Form>::Find(a.matrix, band_row, n_whole));
    float acc[kTiles][4] = {};
    x.template AddTiles<false>(weights, last, warp, its_units, acc);
    put_parts(last, acc);
  }
  Barrier();
  add_parts(last, n_chunks - (n_passes - 1) * kTilePassChunks);
  WEFT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int pair = t + i * kMatmulThreads, row = pair / kBandOutputs;
    const int output = BlockX() * kBandOutputs + pair % kBandOutputs;
    if (row < rows.count && output < a.matrix.n_out) PutOutput(a, rows, row, output, totals[i]);
  }
  ActivateOutputs(a, rows, BlockX() * kBandOutputs, kBandOutputs, x.meta);
}

// Many rows: each warp has its own band. A shorter last chunk is added after the loop as well.
template <typename Form, int kMaxRows, typename Inputs>
WEFT_DEVICE void MultiplyBands(const MatmulArgs& a, const MatmulRows& rows, Inputs& x) {
  constexpr int kTiles = kMaxRows / kTileColumns;
  const int t = ThreadIndex(), g = t % 32 / 4, k = t % 4;
  const int n_whole = x.n_units / kChunkUnits, n_chunks = CeilDiv(x.n_units, kChunkUnits);
  const int n_passes = CeilDiv(n_chunks, kTilePassChunks);
  const int n_bands = CeilDiv(a.matrix.n_out, kBandOutputs), band = BlockX() * kTileWarps + t / 32;
  // A warp beyond the last band repeats the last one, and its sums are not used.
  const int64_t band_row = a.matrix.RowOf(rows.member, Min(band, n_bands - 1) * kBandOutputs);
  float totals[kTiles][4] = {};
  const auto add_chunk = [&](const float(*acc)[4]) {
    WEFT_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      WEFT_UNROLL
      for (int s = 0; s < 4; ++s) totals[j][s] = totals[j][s] + acc[j][s];
    }
  };
  ChunkAddress<Form> at = TileWeights<Form>::Find(a.matrix, band_row, 0);
  TileWeights<Form> weights[2];
  x.CopyNext(0);
  if (n_whole > 0) weights[0].Fetch(at);
  for (int pass = 0; pass < n_passes; ++pass) {
    WaitCopies<0>();
    Barrier();
    const int half = pass & 1;
    if (pass + 1 < n_passes) x.CopyNext(half ^ 1);
    WEFT_UNROLL
    for (int i = 0; i < kTilePassChunks; ++i) {
      const int chunk = pass * kTilePassChunks + i, next = i + 1;
      if (chunk + 1 < n_whole) {
        weights[next % 2].Fetch(at.After(next, 0, next * kChunkInputs / kSuperInputs));
      }
      if (chunk >= n_whole) continue;
      float acc[kTiles][4] = {};
      x.template AddTiles<true>(weights[i % 2], half, i, kChunkUnits, acc);
      add_chunk(acc);
    }
    at = at.After(kTilePassChunks, 0, kTilePassSupers);
  }
  if (n_whole < n_chunks) {
    const int its_units = x.n_units - n_whole * kChunkUnits;
    weights[0].Fetch(TileWeights<Form>::Find(a.matrix, band_row, n_whole));
    float acc[kTiles][4] = {};
    x.template AddTiles<false>(weights[0], (n_passes - 1) & 1, n_whole % kTilePassChunks, its_units,
                               acc);
    add_chunk(acc);
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
  ActivateOutputs(a, rows, BlockX() * kOutputs, kOutputs, x.meta);
}

template <typename Form, int kMaxRows, int kBands>
WEFT_DEVICE void MultiplyTiles(const MatmulArgs& a) {
  using Room = TileRoom<kMaxRows, kBands>;
  WEFT_DYNAMIC_SHARED(uint32_t, q, 0, Room::kQ);
  WEFT_DYNAMIC_SHARED(uint32_t, meta, Room::kQ, Room::kMeta);
  MatmulRows rows;
  if (!FindRows<kMaxRows>(a, &rows)) return;
  TileInputs<Form, kMaxRows, decltype(q), decltype(meta)> x(a, rows, q, meta);
  if constexpr (kBands > 1) {
    MultiplyBands<Form, kMaxRows>(a, rows, x);
  } else {
    WEFT_DYNAMIC_SHARED(float, parts, Room::kQ + Room::kMeta, Room::kParts);
    MultiplyBand<Form, kMaxRows>(a, rows, x, parts);
  }
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_MATMUL_TILES_DEVICE_H_
