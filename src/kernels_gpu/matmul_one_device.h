// A product of quantized weights with one row of activations, in the order of sums of
// matmul_device.h.
//
// A group of `lanes` lanes has kOneOutputs outputs, of which each lane takes a chunk at a time. The
// activations of a pass, a chunk for each lane, lie in shared memory: lanes are 128 of them apart,
// which would be a line of the cache for each. The next pass's are copied meanwhile.
#ifndef WEFT_KERNELS_GPU_MATMUL_ONE_DEVICE_H_
#define WEFT_KERNELS_GPU_MATMUL_ONE_DEVICE_H_

#include "kernels_gpu/matmul_device.h"

namespace weft::device {

constexpr int kChunkUnits = kChunkInputs / kBlockInputs;
constexpr int kPassChunks = 32;
// From chunk to chunk of a pass in shared memory: eight lanes that read 16 bytes each meet no bank
// twice.
constexpr int kChunkWords = kChunkInputs / 4 + 4;
constexpr int kPassWords = kPassChunks * kChunkWords;
constexpr int kPassUnits = kPassChunks * kChunkUnits;
static_assert(kPassUnits == kMatmulThreads, "a thread copies the scale and the sums of a unit");

// The words of a unit, in as few loads as its alignment allows.
template <int kWords>
WEFT_DEVICE void LoadUnit(const uint32_t* from, uint32_t* words) {
  if constexpr (kWords % 4 == 0) {
    WEFT_UNROLL
    for (int i = 0; i < kWords; i += 4) {
      const Words4 x = LoadWords4(from + i);
      WEFT_UNROLL
      for (int j = 0; j < 4; ++j) words[i + j] = x.w[j];
    }
  } else if constexpr (kWords % 2 == 0) {
    WEFT_UNROLL
    for (int i = 0; i < kWords; i += 2) {
      const Words2 x = LoadWords2(from + i);
      words[i] = x.w[0];
      words[i + 1] = x.w[1];
    }
  } else {
    WEFT_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = Load(from + i);
  }
}

// A unit's bytes of scales.
template <int kBytes>
WEFT_DEVICE void LoadMeta(const uint8_t* from, uint8_t* meta) {
  uint32_t bits = 0;
  if constexpr (kBytes == 4) {
    bits = Load(reinterpret_cast<const uint32_t*>(from));
  } else if constexpr (kBytes == 2) {
    bits = Load(reinterpret_cast<const uint16_t*>(from));
  } else {
    bits = Load(from);
  }
  WEFT_UNROLL
  for (int i = 0; i < kBytes; ++i) meta[i] = static_cast<uint8_t>(bits >> (8 * i));
}

// A chunk of an output's weights, on its way from memory. Units that the row does not have are the
// chunk's first, for nobody.
template <typename Form>
struct ChunkWeights {
  uint32_t words[kChunkUnits][Form::kBits];
  uint8_t meta[kChunkUnits][Form::kMetaBytes];
  uint16_t super[2];

  WEFT_DEVICE void Fetch(const MatrixView& m, int64_t row, int chunk, int n_units) {
    WEFT_UNROLL
    for (int unit = 0; unit < kChunkUnits; ++unit) {
      const UnitAddress<Form> at(m, row, chunk, unit < n_units ? unit : 0);
      LoadUnit<Form::kBits>(at.words, words[unit]);
      LoadMeta<Form::kMetaBytes>(at.meta, meta[unit]);
      if (unit > 0) continue;
      WEFT_UNROLL
      for (int i = 0; i < Form::kSuperHalves; ++i) super[i] = Load(at.super + i);
    }
  }
};

// The activations of a pass.
template <typename Bytes, typename Scales, typename Sums>
struct PassInputs {
  Bytes& q;
  Scales& scales;
  Sums& sums;

  // Begins to copy the units [first, end) of row `row`, of `n_units`, to one half of the memory.
  WEFT_DEVICE void Copy(const Int8View& x, int64_t row, int n_units, int first, int end,
                        int half) const {
    const int t = ThreadIndex();
    const int64_t from = row * n_units + first;
    // Two pieces of 16 bytes for each unit.
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int piece = t + i * kMatmulThreads, unit = piece / 2;
      if (first + unit >= end) continue;
      const int word = half * kPassWords + unit / kChunkUnits * kChunkWords +
                       (unit % kChunkUnits * 2 + piece % 2) * 4;
      CopyWords4(q, word, x.q + from * kBlockInputs + piece * 16);
    }
    CommitCopies();
    if (first + t >= end) return;
    scales[half * kPassUnits + t] = Load(x.scales + from + t);
    sums[half * kPassUnits + t] = static_cast<uint32_t>(Load(x.sums + from + t));
  }
};

// Adds a chunk of each of the outputs to its accumulator.
template <typename Form, typename Inputs>
WEFT_DEVICE void AddChunkOfOne(const Inputs& x, const ChunkWeights<Form>* weights, int place,
                               int n_units, float* acc) {
  const Words4 scales = ReadWords4(x.scales, place * kChunkUnits);
  const Words4 sums = ReadWords4(x.sums, place * kChunkUnits);
  WEFT_UNROLL
  for (int unit = 0; unit < kChunkUnits; ++unit) {
    if (unit >= n_units) continue;
    const int half = place / kPassChunks;
    const int word = half * kPassWords + place % kPassChunks * kChunkWords + unit * 8;
    const Words4 low = ReadWords4(x.q, word), high = ReadWords4(x.q, word + 4);
    WEFT_UNROLL
    for (int o = 0; o < kOneOutputs; ++o) {
      int dot[2] = {0, 0};
      WEFT_UNROLL
      for (int g = 0; g < 8; ++g) {
        int& sum = dot[Form::kHalves && g >= 4 ? 1 : 0];
        sum = DotBytes(GroupOf<Form>(weights[o].words[unit], g), g < 4 ? low.w[g] : high.w[g - 4],
                       sum);
      }
      AddDots<Form>(dot, static_cast<int32_t>(sums.w[unit]), FloatOf(scales.w[unit]),
                    ScalesOf<Form>(weights[o].meta[unit], weights[o].super), &acc[o]);
    }
  }
}

template <typename Form>
WEFT_DEVICE void MultiplyOne(const MatmulArgs& a) {
  WEFT_SHARED(uint32_t, q, 2 * kPassWords);
  WEFT_SHARED(float, scales, 2 * kPassUnits);
  WEFT_SHARED(uint32_t, sums, 2 * kPassUnits);
  WEFT_SHARED(float, parts, 2 * kMatmulThreads * kOneOutputs);
  MatmulRows rows;
  if (!FindRows<1>(a, &rows)) return;
  const PassInputs<decltype(q), decltype(scales), decltype(sums)> x = {q, scales, sums};
  const int t = ThreadIndex(), lane = t % a.lanes, n_outputs = OneOutputs(a.lanes);
  const int first_output = BlockX() * n_outputs, n_units = a.matrix.n_in / kBlockInputs;
  const int n_chunks = CeilDiv(n_units, kChunkUnits), n_passes = CeilDiv(n_chunks, a.lanes);
  const int64_t source = static_cast<int64_t>(BlockZ()) * a.member_rows + rows.SourceOf(a, 0);
  float totals[kOneOutputs] = {};
  // Adds a pass's chunk sums, in order; thread t has the outputs t, t + kMatmulThreads ...
  const auto add_parts = [&](int pass) {
    const int n_parts = Min(a.lanes, n_chunks - pass * a.lanes);
    WEFT_UNROLL
    for (int i = 0; i < kOneOutputs; ++i) {
      const int output = t + i * kMatmulThreads;
      if (output >= n_outputs) continue;
      const int at = (pass % 2 * kOneOutputs * kMatmulThreads) + output * a.lanes;
      for (int l = 0; l < n_parts; ++l) totals[i] = totals[i] + parts[at + l];
    }
  };
  const auto copy = [&](int pass) {
    const int first = pass * a.lanes * kChunkUnits;
    x.Copy(a.q, source, n_units, first, Min(n_units, first + a.lanes * kChunkUnits), pass % 2);
  };
  copy(0);
  for (int pass = 0; pass < n_passes; ++pass) {
    const int chunk = Min(pass * a.lanes + lane, n_chunks - 1);
    const int its_units = Min(kChunkUnits, n_units - chunk * kChunkUnits);
    ChunkWeights<Form> weights[kOneOutputs];
    WEFT_UNROLL
    for (int o = 0; o < kOneOutputs; ++o) {
      const int output = Min(first_output + t / a.lanes * kOneOutputs + o, a.matrix.n_out - 1);
      weights[o].Fetch(a.matrix, static_cast<int64_t>(rows.member) * a.matrix.n_out + output, chunk,
                       its_units);
    }
    WaitCopies<0>();
    Barrier();
    if (pass + 1 < n_passes) copy(pass + 1);
    if (pass > 0) add_parts(pass - 1);
    float acc[kOneOutputs] = {};
    AddChunkOfOne<Form>(x, weights, pass % 2 * kPassChunks + lane, its_units, acc);
    WEFT_UNROLL
    for (int o = 0; o < kOneOutputs; ++o) {
      parts[pass % 2 * kOneOutputs * kMatmulThreads + (t / a.lanes * kOneOutputs + o) * a.lanes +
            lane] = acc[o];
    }
  }
  Barrier();
  add_parts(n_passes - 1);
  WEFT_UNROLL
  for (int i = 0; i < kOneOutputs; ++i) {
    const int output = t + i * kMatmulThreads;
    if (output >= n_outputs || first_output + output >= a.matrix.n_out) continue;
    PutOutput(a, rows, 0, first_output + output, totals[i]);
  }
}

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_MATMUL_ONE_DEVICE_H_
