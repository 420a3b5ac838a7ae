// Products of weights with rows of activations, shared by the kernels of all forms.
//
// The order of an output's sum: inputs are divided into chunks of 128. A chunk has one accumulator,
// to which blocks of 32 (or single inputs of float weights) are added in order; chunk sums are
// added in order. Lanes take whole chunks, so the order is the same for any number of lanes, rows
// and tiles.
#ifndef WEFT_COMPUTE_KERNELS_GPU_MATMUL_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_MATMUL_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/activate_device.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/weights_device.h"

namespace weft::device {

// The rows that a thread block computes, and the stack member they are multiplied by.
struct MatmulRows {
  int member, first, count;
  WEFT_DEVICE int SourceOf(const MatmulArgs& a, int r) const {
    return a.sources != nullptr ? a.sources[first + r] : first + r;
  }
};

// What belongs to a block of activations.
struct BlockMeta {
  float scale;
  int32_t halves;  // sums of the first and last 16, in the low and high half
  float sum;

  WEFT_DEVICE int Half(int i) const {
    return i == 0 ? static_cast<int16_t>(halves & 0xFFFF) : halves >> 16;
  }
};

// What the dot product of a block's levels begins with, so that each level counts from the form's
// zero; of one half, if the form has halves.
template <typename Form>
WEFT_DEVICE int32_t FirstDot(const BlockMeta& x, int half) {
  if constexpr (Form::kZero == 0) return kDotBits;
  if constexpr (Form::kHalves) return kDotBits - Form::kZero * x.Half(half);
  return static_cast<int32_t>(BitsOf(Fma(x.sum, -static_cast<float>(Form::kZero), kDotStart)));
}
// A dot product that began with FirstDot, times the scale of its half: rounded once, as the product
// of both would be. Forms with most to keep in registers do without `start`.
template <typename Form>
WEFT_DEVICE float ScaleDot(int32_t dot, const UnitScales& s, int half) {
  const float sum = FloatOf(static_cast<uint32_t>(dot));
  if constexpr (Form::kHalves && Form::kMins) return (sum - kDotStart) * s.scale[half];
  return Fma(sum, s.scale[half], s.start[half]);
}

// Adds a block's dot products (one per half if the form has halves), which began with FirstDot, to
// an output's accumulator.
template <typename Form>
WEFT_DEVICE void AddDots(const int32_t* dot, const BlockMeta& x, const UnitScales& s, float* acc) {
  if constexpr (!Form::kHalves) {
    float part = ScaleDot<Form>(dot[0], s, 0);
    if constexpr (Form::kMins) part = Fma(x.sum, s.min, part);
    *acc = Fma(part, x.scale, *acc);
  } else {
    *acc = Fma(ScaleDot<Form>(dot[0], s, 0), x.scale, *acc);
    *acc = Fma(ScaleDot<Form>(dot[1], s, 1), x.scale, *acc);
    if constexpr (Form::kMins) {
      const int sum = x.Half(0) * s.half_min[0] + x.Half(1) * s.half_min[1];
      *acc = Fma(-(static_cast<float>(sum) * s.min), x.scale, *acc);
    }
  }
}

// BlockMeta of a chunk's four blocks, in shared memory. It has only the sums that the form uses.
constexpr int kFourMeta = 8;  // words
template <typename Form>
struct FourMeta {
  Words4 scales, sums;  // of halves as words, or of blocks as floats

  // The place, in a row's meta, of the four words at `word` of a row's FourMeta.
  WEFT_DEVICE static int From(int word) {
    const int second = Form::kHalves ? 4 : 8;
    return word / kFourMeta * kMetaWords + (word % kFourMeta == 0 ? 0 : second);
  }
  template <typename Shared>
  WEFT_DEVICE void Read(const Shared& shared, int word) {
    scales = ReadWords4(shared, word);
    if constexpr (Form::kMins || Form::kZero != 0) sums = ReadWords4(shared, word + 4);
  }
  WEFT_DEVICE BlockMeta Of(int i) const {
    const uint32_t sum = sums.w[i];
    if constexpr (Form::kHalves) return {FloatOf(scales.w[i]), static_cast<int32_t>(sum), 0.0f};
    return {FloatOf(scales.w[i]), 0, FloatOf(sum)};
  }
};

template <typename Form>
struct QuantProduct {
  // Adds one chunk of output row `row` to the accumulators of all rows.
  template <int kRows>
  WEFT_DEVICE static void AddChunk(const MatmulArgs& a, const MatmulRows& rows, int64_t row,
                                   int chunk, float* acc) {
    const int n_units = a.matrix.n_in / kBlockInputs;
    ChunkWeights<Form> weights;
    weights.Fetch(ChunkAddress<Form>(a.matrix, row, chunk));
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      const int block = chunk * kChunkUnits + unit;
      if (block >= n_units) continue;
      const UnitScales scales = weights.scales.Of(unit);
      uint32_t words[Form::kBits], groups[8];
      weights.Unit(unit, words);
      WEFT_UNROLL
      for (int g = 0; g < 8; ++g) groups[g] = GroupOf<Form>(words, g);
      WEFT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows.count) continue;
        const int64_t source = static_cast<int64_t>(BlockZ()) * a.member_rows + rows.SourceOf(a, r);
        AddBlock(a.q, source, n_units, block, groups, scales, &acc[r]);
      }
    }
  }

 private:
  WEFT_DEVICE static void AddBlock(const Int8View& x, int64_t row, int n_units, int block,
                                   const uint32_t* groups, const UnitScales& s, float* acc) {
    const auto* const q =
        reinterpret_cast<const uint32_t*>(x.q + (row * n_units + block) * kBlockInputs);
    const uint32_t* const words = x.meta + MetaAt(n_units, row, block);
    const BlockMeta meta = {FloatOf(words[0]), static_cast<int32_t>(words[4]), FloatOf(words[8])};
    int32_t dot[2] = {FirstDot<Form>(meta, 0), FirstDot<Form>(meta, 1)};
    WEFT_UNROLL
    for (int g = 0; g < 8; ++g) {
      int32_t& sum = dot[Form::kHalves && g >= 4 ? 1 : 0];
      sum = DotBytes(groups[g], q[g], sum);
    }
    AddDots<Form>(dot, meta, s, acc);
  }
};

template <typename Element>
struct FloatProduct {
  template <int kRows>
  WEFT_DEVICE static void AddChunk(const MatmulArgs& a, const MatmulRows& rows, int64_t row,
                                   int chunk, float* acc) {
    constexpr int kUnits = kChunkInputs / kFloatUnit;
    for (int unit = 0; unit < kUnits; ++unit) {
      const int first = chunk * kChunkInputs + unit * kFloatUnit;
      if (first >= a.matrix.n_in) return;
      const int64_t at = FloatUnitAt(a.matrix, row, chunk, unit);
      const int n = Min(kFloatUnit, a.matrix.n_in - first);
      for (int i = 0; i < n; ++i) {
        const float weight = Element::Get(a.matrix.levels, at + i);
        WEFT_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if (r >= rows.count) continue;
          const float* const x =
              a.x.values + rows.SourceOf(a, r) * a.x.stride + BlockZ() * a.member_x;
          acc[r] = Fma(weight, x[first + i], acc[r]);
        }
      }
    }
  }
};

// The thread block's rows; false if there are none.
template <int kRows>
WEFT_DEVICE bool FindRows(const MatmulArgs& a, MatmulRows* rows) {
  if (a.tiles != nullptr) {
    if (BlockY() >= *a.n_tiles) return false;
    const MemberTile tile = a.tiles[BlockY()];
    *rows = {tile.member, tile.first, tile.count};
    return true;
  }
  const int first = BlockY() * kRows, n = *a.n_rows;
  *rows = {BlockZ(), first, Min(kRows, n - first)};
  return first < n;
}

WEFT_DEVICE void PutOutput(const MatmulArgs& a, const MatmulRows& rows, int r, int output,
                           float value) {
  if (a.bias != nullptr) value = value + a.bias[rows.member * a.matrix.n_out + output];
  if (a.scale != nullptr) value = value * a.scale[rows.member];
  a.out.values[(rows.first + r) * a.out.stride + BlockZ() * a.member_out + output] = value;
}

// Called after a block has written `n` outputs from `first` on: activates the groups that this
// completes. `flag`: a word of shared memory that is free.
template <typename Shared>
WEFT_DEVICE void ActivateOutputs(const MatmulArgs& a, const MatmulRows& rows, int first, int n,
                                 Shared& flag) {
  if (a.arrivals == nullptr) return;
  const int n_blocks = a.then.n_blocks, all = a.matrix.n_out / n_blocks;
  const int end = Min(first + n, a.matrix.n_out);
  for (int at = first; at < end;) {
    const int unit = at / kBlockInputs, next = Min(end, (unit + 1) * kBlockInputs);
    const int block = unit % n_blocks;
    Barrier();
    if (ThreadIndex() == 0) {
      int32_t* const count = a.arrivals + static_cast<int64_t>(BlockY()) * n_blocks + block;
      flag[0] = Arrive(count, next - at, all) ? 1 : 0;
    }
    Barrier();
    at = next;
    if (flag[0] == 0) continue;
    constexpr int kAtOnce = kMatmulThreads / kQuantizeLanes;
    for (int r = 0; r < rows.count; r += kAtOnce) {
      const int row = r + ThreadIndex() / kQuantizeLanes;
      ActivateBlock(a.then, rows.first + Min(row, rows.count - 1), block, row < rows.count);
    }
  }
}

// Chunk sums are exchanged through shared memory, where thread t adds those of the pairs t, t +
// kMatmulThreads ... of outputs and rows.
template <typename Product, int kRows>
WEFT_DEVICE void Multiply(const MatmulArgs& a) {
  WEFT_SHARED(float, parts, kMatmulThreads* kRows);
  MatmulRows rows;
  if (!FindRows<kRows>(a, &rows)) return;
  const int t = ThreadIndex(), n_outputs = kMatmulThreads / a.lanes;
  const int first_output = BlockX() * n_outputs, output = first_output + t / a.lanes;
  const int64_t matrix_row = a.matrix.RowOf(rows.member, output);
  const int n_chunks = CeilDiv(a.matrix.n_in, kChunkInputs);
  float totals[kRows] = {};
  for (int base = 0; base < n_chunks; base += a.lanes) {
    float acc[kRows] = {};
    const int chunk = base + t % a.lanes;
    if (output < a.matrix.n_out && chunk < n_chunks) {
      Product::template AddChunk<kRows>(a, rows, matrix_row, chunk, acc);
    }
    if (base > 0) Barrier();
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) parts[r * kMatmulThreads + t] = acc[r];
    Barrier();
    const int n_parts = Min(a.lanes, n_chunks - base);
    WEFT_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int pair = t + i * kMatmulThreads;
      if (pair >= n_outputs * kRows) continue;
      const int at = pair / n_outputs * kMatmulThreads + pair % n_outputs * a.lanes;
      for (int l = 0; l < n_parts; ++l) totals[i] = totals[i] + parts[at + l];
    }
  }
  WEFT_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int pair = t + i * kMatmulThreads;
    if (pair >= n_outputs * kRows) continue;
    const int r = pair / n_outputs, o = first_output + pair % n_outputs;
    if (r >= rows.count || o >= a.matrix.n_out) continue;
    PutOutput(a, rows, r, o, totals[i]);
  }
  ActivateOutputs(a, rows, first_output, n_outputs, parts);
}

// Decodes one block of 32 values of a row.
template <typename Form>
WEFT_DEVICE void DecodeBlock(const MatrixView& m, int64_t row, int block, float* out) {
  const ChunkAddress<Form> at(m, row, block / kChunkUnits);
  const int unit = block % kChunkUnits;
  uint32_t words[Form::kBits];
  WEFT_UNROLL
  for (int i = 0; i < Form::kBits; ++i) words[i] = Load(at.words + LevelsAt(i, 0) + unit);
  const UnitScales s = at.LoadScales().Of(unit);
  WEFT_UNROLL
  for (int g = 0; g < 8; ++g) {
    const uint32_t levels = GroupOf<Form>(words, g);
    const int half = Form::kHalves && g >= 4 ? 1 : 0;
    for (int j = 0; j < 4; ++j) {
      const int level = static_cast<int8_t>(levels >> (8 * j)) - Form::kZero;
      float value = s.scale[half] * static_cast<float>(level);
      if constexpr (Form::kMins) {
        value = value + (Form::kHalves ? -(s.min * static_cast<float>(s.half_min[half])) : s.min);
      }
      out[4 * g + j] = value;
    }
  }
}

WEFT_DEVICE void PutEmbedded(const EmbedArgs& a, float value, float* out) {
  if (a.scale != 1.0f) value = value * a.scale;
  *out = a.add != 0 ? *out + value : value;
}

template <typename Form>
WEFT_DEVICE void EmbedQuantized(const EmbedArgs& a) {
  const int row = BlockY(), block = BlockX() * kEmbedThreads + ThreadIndex();
  if (row >= *a.n_rows || block * kBlockInputs >= a.table.n_in || a.index[row] < 0) return;
  float values[kBlockInputs];
  DecodeBlock<Form>(a.table, a.index[row], block, values);
  float* const out = a.out.values + row * a.out.stride + block * kBlockInputs;
  for (int i = 0; i < kBlockInputs; ++i) PutEmbedded(a, values[i], out + i);
}

template <typename Element>
WEFT_DEVICE void EmbedFloats(const EmbedArgs& a) {
  const int row = BlockY(), block = BlockX() * kEmbedThreads + ThreadIndex();
  if (row >= *a.n_rows || a.index[row] < 0) return;
  float* const out = a.out.values + row * a.out.stride;
  const int first = block * kBlockInputs;
  for (int i = first; i < Min(first + kBlockInputs, a.table.n_in); ++i) {
    const int64_t at =
        FloatUnitAt(a.table, a.index[row], i / kChunkInputs, i % kChunkInputs / kFloatUnit) +
        i % kFloatUnit;
    PutEmbedded(a, Element::Get(a.table.levels, at), out + i);
  }
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_MATMUL_DEVICE_H_
