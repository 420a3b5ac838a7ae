// The kernels of attention.
#include "compute/kernels_gpu/attention.h"

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attend_device.h"
#include "compute/kernels_gpu/kv_device.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/quantize_device.h"

namespace weft::device {

// --- storing ---------------------------------------------------------------------------------

// --- attention -------------------------------------------------------------------------------

// Blocks per multiprocessor: as many as fit into its shared memory, limited by registers.
template <typename Kv>
constexpr int AttendBlocks(AttendKind kind) {
  const int room = kProcessorSharedBytes / (4 * AttendWords(kind) + 1024);
  const int most = Kv::kBytes == 4 ? 3 : 4;
  return room < most ? room : most;
}

#define WEFT_ATTEND_OF_KIND_(kind, type, vectors)                                        \
  WEFT_RESIDENT_KERNEL(Attend##kind##type##_##vectors, AttendArgs, 32 * kMaxAttendWarps, \
                       AttendBlocks<KvOf##type>(AttendKind::k##kind)) {                  \
    WEFT_SHARED(uint32_t, words, AttendWords(AttendKind::k##kind));                      \
    AttendToItem<KvOf##type, vectors, AttendKind::k##kind>(a, words);                    \
  }
#define WEFT_DEFINE_ATTEND_(type, vectors) \
  WEFT_ATTEND_OF_KIND_(Few, type, vectors) \
  WEFT_ATTEND_OF_KIND_(Many, type, vectors)
#define WEFT_DEFINE_ATTEND_SOME_(type, vectors) WEFT_ATTEND_OF_KIND_(Some, type, vectors)
WEFT_ALL_KV_KERNELS(WEFT_DEFINE_ATTEND_)
WEFT_SOME_KV_KERNELS(WEFT_DEFINE_ATTEND_SOME_)

// --- merging ---------------------------------------------------------------------------------

// A thread's sums: four dimensions of a row's head.
struct Merged {
  float max, weight, sums[4];
};
WEFT_DEVICE void LoadPart(const float* part, float* sums) {
  const Words4 four = LoadWords4(part);
  WEFT_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = FloatOf(four.w[i]);
}

// Merges parts [begin, end), at most 32, which are `step` floats apart. A scan computes the running
// maxima first, so that all scale factors are known before the sums arrive.
WEFT_DEVICE void JoinParts(const float* parts, const float* tails, int64_t step, int begin, int end,
                           Merged& merged) {
  constexpr int kAtOnce = 8;
  const int lane = ThreadIndex() % 32, mine = begin + lane;
  const float its_max = mine < end ? tails[mine * step] : MinusInfinity();
  const float its_weight = mine < end ? tails[mine * step + 1] : 0.0f;
  float upto = Max(merged.max, its_max);
  for (int distance = 1; distance < 32; distance *= 2) {
    upto = Max(upto, Shuffle(upto, Max(lane - distance, 0)));
  }
  const float left = Shuffle(upto, Max(lane - 1, 0)), before = lane > 0 ? left : merged.max;
  const float old_scale = Exp(before - upto), new_scale = Exp(its_max - upto);
  for (int at = begin; at < end; at += kAtOnce) {
    float sums[kAtOnce][4];
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) LoadPart(parts + Min(at + i, end - 1) * step, sums[i]);
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int from = at + i - begin;
      const float scale = Shuffle(old_scale, from), its_scale = Shuffle(new_scale, from);
      const float weight = Fma(Shuffle(its_weight, from), its_scale, merged.weight * scale);
      const bool there = at + i < end;
      merged.weight = there ? weight : merged.weight;
      WEFT_UNROLL
      for (int d = 0; d < 4; ++d) {
        const float sum = Fma(sums[i][d], its_scale, merged.sums[d] * scale);
        merged.sums[d] = there ? sum : merged.sums[d];
      }
    }
  }
  merged.max = Shuffle(upto, 31);
}

WEFT_DEVICE void PutMerged(const AttendArgs& a, int row, int head, int dim, const float* values) {
  float* const out =
      a.out.values + row * a.out.stride + static_cast<int64_t>(head) * a.kv.v_dim + dim;
  if (dim < a.kv.v_dim && a.kv.v_dim % 4 == 0 && a.out.stride % 4 == 0) {
    StoreWords4(out,
                {{BitsOf(values[0]), BitsOf(values[1]), BitsOf(values[2]), BitsOf(values[3])}});
  } else {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (dim + i < a.kv.v_dim) out[i] = values[i];
    }
  }
}

WEFT_COOPERATIVE_KERNEL(MergeParts, AttendArgs, kMaxValueDims / 4) {
  const int row = BlockY(), head = BlockX();
  if (row >= *a.step.n_rows) return;
  const Sight sight(a, row);
  const PartPlaces places(a, row, sight.first, sight.last);
  const int n_floats = PartFloats(a.kv.v_dim), dim = 4 * ThreadIndex(), n = places.n();
  const int64_t step = static_cast<int64_t>(a.n_heads) * n_floats;
  // Threads beyond the last dimension read the last ones.
  const float* const part = PartAt(a, places.base, head);
  const float* const tails = part + n_floats - 4;
  const float* const parts = part + Min(dim, n_floats - 8);
  Merged merged = {tails[0], tails[1], {}};
  LoadPart(parts, merged.sums);
  for (int at = 1; at < n; at += 32) JoinParts(parts, tails, step, at, Min(at + 32, n), merged);
  float factor = 1.0f;
  if (a.sinks != nullptr) {
    const float max = Max(merged.max, a.sinks[head]);
    factor = Exp(merged.max - max);
    merged.weight = Fma(merged.weight, factor, Exp(a.sinks[head] - max));
  }
  float values[4];
  WEFT_UNROLL
  for (int i = 0; i < 4; ++i) values[i] = merged.sums[i] * factor / merged.weight;
  if (a.bytes.q != nullptr) {
    const int n_blocks = a.kv.v_dim / kBlockInputs;
    QuantizeBlock(values, a.bytes, row, head * n_blocks + dim / kBlockInputs, a.n_heads * n_blocks,
                  dim < a.kv.v_dim);
  }
  if (a.out.values != nullptr) PutMerged(a, row, head, dim, values);
}

}  // namespace weft::device
