// A product of quantized weights with one row of activations, in the order of sums of
// matmul_device.h.
//
// A thread block has a band of outputs. Thread t has output t % 16 and computes kOneAtOnce chunks
// of each pass, so that the lanes of a warp read adjacent weights, and half of them the same
// activations. Activations are in shared memory; those of the next pass are copied while one is
// computed. Chunk sums are exchanged through shared memory and added in order.
#ifndef WEFT_COMPUTE_KERNELS_GPU_MATMUL_ONE_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_MATMUL_ONE_DEVICE_H_

#include "compute/kernels_gpu/matmul_device.h"

namespace weft::device {

constexpr int kOneAtOnce = 2;
constexpr int kOneLanes = kMatmulThreads / kBandOutputs;  // threads per output
constexpr int kPassChunks = kOneLanes * kOneAtOnce;
constexpr int kPassUnits = kPassChunks * kChunkUnits;
// Stride of a pass's chunks in shared memory, such that lanes of two chunks have no bank conflicts.
constexpr int kChunkWords = kChunkInputs / 4 + 4;
constexpr int kPassWords = kPassChunks * kChunkWords;
constexpr int kPassMeta = kPassChunks * kFourMeta;
static_assert(2 * kPassUnits == kMatmulThreads, "a thread copies 16 bytes");
static_assert(kPassMeta <= 4 * kMatmulThreads);

// The activations of two passes, in shared memory (double buffering).
template <typename Form, typename Bytes, typename Meta>
struct PassInputs {
  Bytes& q;
  Meta& meta;

  // Begins to copy units from `first` on of row `row`, which has `n_units`, to one half of the
  // memory.
  WEFT_DEVICE void Copy(const Int8View& x, int64_t row, int n_units, int first, int half) const {
    const int t = ThreadIndex(), unit = t / 2;
    if (first + unit < n_units) {
      const int word = half * kPassWords + unit / kChunkUnits * kChunkWords +
                       (unit % kChunkUnits * 2 + t % 2) * 4;
      CopyWords4(q, word, x.q + (row * n_units + first) * kBlockInputs + t * 16);
    }
    // Of four units at a time, 16 bytes per thread.
    const int n_four = CeilDiv(n_units - first, kChunkUnits) * kFourMeta;
    if (4 * t < Min(kPassMeta, n_four)) {
      const uint32_t* const from = x.meta + row * MetaWords(n_units);
      CopyWords4(meta, half * kPassMeta + 4 * t,
                 from + first / kChunkUnits * kMetaWords + FourMeta<Form>::From(4 * t));
    }
    CommitCopies();
  }

  // A chunk's sum of one output; `place` is the chunk's index over both halves.
  WEFT_DEVICE float Multiply(const ChunkWeights<Form>& weights, int place, int n_units) const {
    FourMeta<Form> four;
    four.Read(meta, place * kFourMeta);
    float acc = 0.0f;
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      if (unit >= n_units) continue;
      const int word = place * kChunkWords + unit * 8;
      const Words4 low = ReadWords4(q, word), high = ReadWords4(q, word + 4);
      const BlockMeta x = four.Of(unit);
      int32_t dot[2] = {FirstDot<Form>(x, 0), FirstDot<Form>(x, 1)};
      uint32_t words[Form::kBits];
      weights.Unit(unit, words);
      WEFT_UNROLL
      for (int g = 0; g < 8; ++g) {
        int32_t& sum = dot[Form::kHalves && g >= 4 ? 1 : 0];
        const uint32_t bytes = g < 4 ? low.w[g % 4] : high.w[g % 4];
        sum = DotBytes(GroupOf<Form>(words, g), bytes, sum);
      }
      AddDots<Form>(dot, x, weights.scales.Of(unit), &acc);
    }
    return acc;
  }
};

template <typename Form>
WEFT_DEVICE void MultiplyOne(const MatmulArgs& a) {
  WEFT_SHARED(uint32_t, q, 2 * kPassWords);
  WEFT_SHARED(uint32_t, meta, 2 * kPassMeta);
  WEFT_SHARED(float, parts, 2 * kPassChunks * kBandOutputs);
  MatmulRows rows;
  if (!FindRows<1>(a, &rows)) return;
  const PassInputs<Form, decltype(q), decltype(meta)> x = {q, meta};
  const int t = ThreadIndex(), place = t % kBandOutputs, lane = t / kBandOutputs;
  const int n_units = a.matrix.n_in / kBlockInputs, n_chunks = CeilDiv(n_units, kChunkUnits);
  const int n_passes = CeilDiv(n_chunks, kPassChunks);
  const int64_t row = a.matrix.RowOf(rows.member, BlockX() * kBandOutputs + place);
  const int64_t source = static_cast<int64_t>(BlockZ()) * a.member_rows + rows.SourceOf(a, 0);
  float total = 0.0f;
  // Adds a pass's chunk sums, in order. The first kBandOutputs threads have one output each.
  const auto add_parts = [&](int pass) {
    if (t >= kBandOutputs) return;
    const int n_parts = Min(kPassChunks, n_chunks - pass * kPassChunks);
    const int at = pass % 2 * kPassChunks * kBandOutputs + t;
    for (int i = 0; i < n_parts; ++i) total = total + parts[at + i * kBandOutputs];
  };
  x.Copy(a.q, source, n_units, 0, 0);
  for (int pass = 0; pass < n_passes; ++pass) {
    ChunkWeights<Form> weights[kOneAtOnce];
    int its_units[kOneAtOnce];
    WEFT_UNROLL
    for (int i = 0; i < kOneAtOnce; ++i) {
      const int chunk = pass * kPassChunks + i * kOneLanes + lane;
      its_units[i] = Min(kChunkUnits, n_units - chunk * kChunkUnits);
      weights[i].Fetch(ChunkAddress<Form>(a.matrix, row, Min(chunk, n_chunks - 1)));
    }
    WaitCopies<0>();
    Barrier();
    if (pass + 1 < n_passes) {
      x.Copy(a.q, source, n_units, (pass + 1) * kPassUnits, (pass + 1) % 2);
    }
    if (pass > 0) add_parts(pass - 1);
    WEFT_UNROLL
    for (int i = 0; i < kOneAtOnce; ++i) {
      const int at = pass % 2 * kPassChunks + i * kOneLanes + lane;
      if (its_units[i] > 0) {
        parts[at * kBandOutputs + place] = x.Multiply(weights[i], at, its_units[i]);
      }
    }
  }
  Barrier();
  add_parts(n_passes - 1);
  const int output = BlockX() * kBandOutputs + t;
  if (t < kBandOutputs && output < a.matrix.n_out) PutOutput(a, rows, 0, output, total);
  ActivateOutputs(a, rows, BlockX() * kBandOutputs, kBandOutputs, meta);
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_MATMUL_ONE_DEVICE_H_
