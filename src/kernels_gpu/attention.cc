#include "kernels_gpu/attention.h"

#include "device/dialect.h"
#include "kernels_gpu/math.h"

namespace weft::device {

// --- where things lie ------------------------------------------------------------------------

WEFT_DEVICE std::byte* PlaceOf(const PoolView& pool, int id) {
  return pool.slabs[id >> pool.shift] + (id & ((1 << pool.shift) - 1)) * pool.bytes;
}

// The page of a sequence's position.
WEFT_DEVICE std::byte* PageOf(const StepView& step, const KvView& kv, int sequence, int position) {
  const int begin = step.table_begins[kv.group * step.max_sequences + sequence];
  return PlaceOf(kv.pool, step.pages[begin + (position >> kv.page_shift)]);
}

// --- elements of keys and values ---------------------------------------------------------------

template <typename Element>
struct FloatKv {
  WEFT_DEVICE static float Get(const std::byte* page, const KvPlane& p, int head, int token,
                               int dim) {
    const auto* const values = reinterpret_cast<const typename Element::Stored*>(page + p.offset);
    return Element::ToFloat(values[head * p.head + token * p.token + dim * p.dim]);
  }
  // Up to 32 dimensions from `dim` on.
  WEFT_DEVICE static void Put(std::byte* page, const KvPlane& p, int head, int token, int dim,
                              int n, const float* x) {
    auto* const values = reinterpret_cast<typename Element::Stored*>(page + p.offset);
    for (int i = 0; i < n; ++i) {
      values[head * p.head + token * p.token + (dim + i) * p.dim] = Element::FromFloat(x[i]);
    }
  }
};

struct KvFloat32 {
  using Stored = float;
  WEFT_DEVICE static float ToFloat(float x) { return x; }
  WEFT_DEVICE static float FromFloat(float x) { return x; }
};
struct KvFloat16 {
  using Stored = uint16_t;
  WEFT_DEVICE static float ToFloat(uint16_t x) { return HalfToFloat(x); }
  WEFT_DEVICE static uint16_t FromFloat(float x) { return FloatToHalf(x); }
};
struct KvBfloat16 {
  using Stored = uint16_t;
  WEFT_DEVICE static float ToFloat(uint16_t x) { return BfloatToFloat(x); }
  WEFT_DEVICE static uint16_t FromFloat(float x) { return FloatToBfloat(x); }
};

struct KvInt8 {
  WEFT_DEVICE static int64_t ScaleAt(const KvPlane& p, int head, int token, int dim) {
    return head * p.scale_head + token * p.scale_token + dim / kScaleDims * p.scale_group;
  }
  WEFT_DEVICE static float Get(const std::byte* page, const KvPlane& p, int head, int token,
                               int dim) {
    const auto* const values = reinterpret_cast<const int8_t*>(page + p.offset);
    const auto* const scales = reinterpret_cast<const uint16_t*>(page + p.scale_offset);
    const int level = values[head * p.head + token * p.token + dim * p.dim];
    return static_cast<float>(level) * HalfToFloat(scales[ScaleAt(p, head, token, dim)]);
  }
  WEFT_DEVICE static void Put(std::byte* page, const KvPlane& p, int head, int token, int dim,
                              int n, const float* x) {
    auto* const values = reinterpret_cast<int8_t*>(page + p.offset);
    auto* const scales = reinterpret_cast<uint16_t*>(page + p.scale_offset);
    float max = 0.0f;
    for (int i = 0; i < n; ++i) max = Max(max, Abs(x[i]));
    const uint16_t bits = FloatToHalf(Min(max / 127.0f, 65504.0f));
    const float scale = HalfToFloat(bits);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < n; ++i) {
      const float clamped = Min(Max(x[i] * inverse, -127.0f), 127.0f);
      const float rounded = (clamped + 12582912.0f) - 12582912.0f;
      values[head * p.head + token * p.token + (dim + i) * p.dim] =
          static_cast<int8_t>(static_cast<int>(rounded));
    }
    scales[ScaleAt(p, head, token, dim)] = bits;
  }
};

using KvOfF32 = FloatKv<KvFloat32>;
using KvOfF16 = FloatKv<KvFloat16>;
using KvOfBF16 = FloatKv<KvBfloat16>;
using KvOfQ8_0 = KvInt8;

template <typename Kv>
WEFT_DEVICE void StoreGroups(const StoreArgs& a) {
  const int row = BlockY();
  if (row >= *a.step.n_rows) return;
  const int k_groups = CeilDiv(a.kv.k_dim, kScaleDims), v_groups = CeilDiv(a.kv.v_dim, kScaleDims);
  int group = BlockX() * kColumnThreads + ThreadIndex();
  const int position = a.step.positions[row];
  std::byte* const page = PageOf(a.step, a.kv, a.step.sequences[row], position);
  const int token = position & ((1 << a.kv.page_shift) - 1);
  if (group < a.n_heads * k_groups) {
    const int head = group / k_groups, dim = group % k_groups * kScaleDims;
    Kv::Put(page, a.kv.keys, head, token, dim, Min(kScaleDims, a.kv.k_dim - dim),
            a.k.values + row * a.k.stride + head * a.kv.k_dim + dim);
    return;
  }
  group -= a.n_heads * k_groups;
  if (a.v.values == nullptr || group >= a.n_heads * v_groups) return;
  const int head = group / v_groups, dim = group % v_groups * kScaleDims;
  Kv::Put(page, a.kv.values, head, token, dim, Min(kScaleDims, a.kv.v_dim - dim),
          a.v.values + row * a.v.stride + head * a.kv.v_dim + dim);
}

// --- attention -----------------------------------------------------------------------------

// A query head of a row, and what it sees.
struct Query {
  const float* values;
  int sequence, position, head, kv_head;
  int first, last;  // positions seen

  WEFT_DEVICE Query() {}
  WEFT_DEVICE Query(const AttendArgs& a, int row, int its_head) {
    values = a.q.values + row * a.q.stride + its_head * a.q_head;
    sequence = a.step.sequences[row];
    position = a.step.positions[row];
    head = its_head;
    kv_head = its_head / a.heads_per_kv_head;
    first = a.window > 0 ? Max(0, position - a.window + 1) : 0;
    last = position;
    if (a.both_ways != 0) {
      const int n_tokens = a.step.first_rows[sequence + 1] - a.step.first_rows[sequence];
      first = a.reach < 0 ? 0 : Max(0, position - a.reach);
      last = a.reach < 0 ? n_tokens - 1 : Min(n_tokens - 1, position + a.reach);
    }
  }
};

// Weighted sums in progress: lane l has dimensions l, l + 32 ... of the values.
template <int kVectors>
struct Sums {
  float max, weight;
  float values[kVectors];
  WEFT_DEVICE Sums() : max(FloatOf(0xFF800000u)), weight(0.0f) {
    WEFT_UNROLL
    for (int i = 0; i < kVectors; ++i) values[i] = 0.0f;
  }
  // Joins those of later positions.
  WEFT_DEVICE void Add(const Sums& other) {
    const float new_max = Max(max, other.max);
    const float mine = Exp(max - new_max), its = Exp(other.max - new_max);
    weight = Fma(other.weight, its, weight * mine);
    WEFT_UNROLL
    for (int i = 0; i < kVectors; ++i) values[i] = Fma(other.values[i], its, values[i] * mine);
    max = new_max;
  }
};

WEFT_DEVICE float ScoreOf(const AttendArgs& a, const Query& query, int position, float product) {
  float score = product * a.scale;
  if (a.softcap > 0.0f) score = Softcap(a.softcap, score);
  if (a.slopes != nullptr) {
    const int distance =
        position < query.position ? query.position - position : position - query.position;
    score = Fma(-a.slopes[query.head], static_cast<float>(distance), score);
  }
  return score;
}

// A position's key times each of the queries.
template <typename Kv, int kRows>
WEFT_DEVICE void MultiplyKey(const AttendArgs& a, const Query* queries, int position,
                             float* products) {
  const std::byte* const page = PageOf(a.step, a.kv, queries[0].sequence, position);
  const int token = position & ((1 << a.kv.page_shift) - 1);
  for (int dim = 0; dim < a.kv.k_dim; ++dim) {
    const float key = Kv::Get(page, a.kv.keys, queries[0].kv_head, token, dim);
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) products[r] = Fma(key, queries[r].values[dim], products[r]);
  }
}

// The weights of a block of positions, the lane's being `position`, for each query; to shared
// memory.
template <typename Kv, int kVectors, int kRows, typename Shared>
WEFT_DEVICE void WeighBlock(const AttendArgs& a, const Query* queries, int position, bool seen,
                            Shared& weights, Sums<kVectors>* sums) {
  float products[kRows];
  WEFT_UNROLL
  for (int r = 0; r < kRows; ++r) products[r] = 0.0f;
  if (seen) MultiplyKey<Kv, kRows>(a, queries, position, products);
  WEFT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float score = seen ? ScoreOf(a, queries[r], position, products[r]) : FloatOf(0xFF800000u);
    const float new_max = Max(sums[r].max, WarpMax(score));
    const float factor = Exp(sums[r].max - new_max);
    const float weight = seen ? Exp(score - new_max) : 0.0f;
    sums[r].weight = Fma(sums[r].weight, factor, WarpSum(weight));
    sums[r].max = new_max;
    WEFT_UNROLL
    for (int i = 0; i < kVectors; ++i) sums[r].values[i] = sums[r].values[i] * factor;
    weights[32 * r + ThreadIndex()] = weight;
  }
}

// Values of positions [begin, end) of a block, weighted for each query. A page is looked up once
// for its positions, and eight of them are asked for before the first is used.
template <typename Kv, int kVectors, int kRows, typename Shared>
WEFT_DEVICE void SumValues(const AttendArgs& a, const Query& query, int block, int begin, int end,
                           Shared& weights, Sums<kVectors>* sums) {
  const int page_tokens = 1 << a.kv.page_shift;
  constexpr int kAtOnce = kVectors <= 4 ? 8 : kVectors <= 8 ? 4 : 2;
  while (begin < end) {
    const std::byte* const page = PageOf(a.step, a.kv, query.sequence, begin);
    const int token = begin & (page_tokens - 1);
    const int n = Min(end - begin, page_tokens - token);
    for (int at = 0; at < n; at += kAtOnce) {
      float values[kAtOnce][kVectors];
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        WEFT_UNROLL
        for (int i = 0; i < kVectors; ++i) {
          const int dim = ThreadIndex() + 32 * i;
          values[j][i] = at + j < n && dim < a.kv.v_dim
                             ? Kv::Get(page, a.kv.values, query.kv_head, token + at + j, dim)
                             : 0.0f;
        }
      }
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (at + j >= n) continue;
        WEFT_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const float its = weights[32 * r + begin - block + at + j];
          WEFT_UNROLL
          for (int i = 0; i < kVectors; ++i) {
            sums[r].values[i] = Fma(its, values[j][i], sums[r].values[i]);
          }
        }
      }
    }
    begin += n;
  }
}

// The positions of one split that the queries see, which are the same for all of them, and so are
// the pages. `weights`: shared, 32 words for each.
template <typename Kv, int kVectors, int kRows, typename Shared>
WEFT_DEVICE void ScanSplit(const AttendArgs& a, const Query* queries, int split, Shared& weights,
                           Sums<kVectors>* sums) {
  const int lane = ThreadIndex(), first = queries[0].first;
  const int begin = split * kSplitTokens, end = Min(begin + kSplitTokens, queries[0].last + 1);
  for (int block = begin; block < end; block += 32) {
    if (block + 31 < first) continue;
    if (lane == 0) CountTile();
    const int mine = block + lane;
    WeighBlock<Kv, kVectors, kRows>(a, queries, mine, mine >= first && mine < end, weights, sums);
    Barrier();
    SumValues<Kv, kVectors, kRows>(a, queries[0], block, Max(first, block), Min(block + 32, end),
                                   weights, sums);
    Barrier();
  }
}

template <int kVectors>
WEFT_DEVICE void Finish(const AttendArgs& a, int row, int head, Sums<kVectors> sums) {
  float factor = 1.0f;
  if (a.sinks != nullptr) {
    const float new_max = Max(sums.max, a.sinks[head]);
    factor = Exp(sums.max - new_max);
    sums.weight = Fma(sums.weight, factor, Exp(a.sinks[head] - new_max));
  }
  float* const out = a.out.values + row * a.out.stride + head * a.kv.v_dim;
  WEFT_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int dim = ThreadIndex() + 32 * i;
    if (dim < a.kv.v_dim) out[dim] = sums.values[i] * factor / sums.weight;
  }
}

// Where sums wait to be merged: maximum, weight, values.
WEFT_DEVICE float* PartialOf(const AttendArgs& a, int row, int head, int split) {
  const int64_t at = (static_cast<int64_t>(row) * a.n_heads + head) * Max(1, a.n_splits) + split;
  return a.partials + at * (2 + a.kv.v_dim);
}

template <int kVectors>
WEFT_DEVICE void PutPartial(const AttendArgs& a, int row, int head, int split,
                            const Sums<kVectors>& sums) {
  float* const partial = PartialOf(a, row, head, split);
  const int lane = ThreadIndex();
  if (lane == 0) {
    partial[0] = sums.max;
    partial[1] = sums.weight;
  }
  WEFT_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    if (lane + 32 * i < a.kv.v_dim) partial[2 + lane + 32 * i] = sums.values[i];
  }
}

template <int kVectors>
WEFT_DEVICE void GetPartial(const AttendArgs& a, int row, int head, int split,
                            Sums<kVectors>* sums) {
  const float* const partial = PartialOf(a, row, head, split);
  const int lane = ThreadIndex();
  sums->max = partial[0];
  sums->weight = partial[1];
  WEFT_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    if (lane + 32 * i < a.kv.v_dim) sums->values[i] = partial[2 + lane + 32 * i];
  }
}

// The splits that a row has seen together with others.
WEFT_DEVICE int SplitsSeen(const AttendArgs& a, int row) {
  return a.together != 0 ? a.step.shared_splits[a.kv.group * a.step.max_rows + row] : 0;
}

template <typename Kv, int kVectors>
WEFT_DEVICE void AttendAll(const AttendArgs& a) {
  WEFT_SHARED(float, weights, 32);
  const int row = BlockY(), head = BlockX();
  if (row >= *a.step.n_rows) return;
  const Query query(a, row, head);
  const int n_seen = SplitsSeen(a, row);
  Sums<kVectors> sums;
  if (n_seen > 0) GetPartial(a, row, head, 0, &sums);
  for (int split = Max(n_seen, query.first / kSplitTokens); split <= query.last / kSplitTokens;
       ++split) {
    Sums<kVectors> part;
    ScanSplit<Kv, kVectors, 1>(a, &query, split, weights, &part);
    sums.Add(part);
  }
  Finish(a, row, head, sums);
}

// A head of a group of rows: the splits that all of them see whole and through the same pages.
template <typename Kv, int kVectors>
WEFT_DEVICE void AttendGroup(const AttendArgs& a) {
  constexpr int kRows = TogetherAtOnce(kVectors);
  WEFT_SHARED(float, weights, 32 * kRows);
  const int number = BlockY(), head = BlockX();
  if (number >= a.step.n_together[a.kv.group]) return;
  const RowGroup group = a.step.together[a.kv.group * a.step.max_together + number];
  const int first = a.n_splits > 0 ? BlockZ() : 0;
  if (first >= group.splits) return;
  const int end = a.n_splits > 0 ? first + 1 : group.splits;
  const int32_t* const rows = a.step.together_rows + a.kv.group * a.step.max_rows + group.begin;
  for (int at = 0; at < group.n_rows; at += kRows) {
    Query queries[kRows];
    Sums<kVectors> sums[kRows];
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      queries[r] = Query(a, rows[Min(at + r, group.n_rows - 1)], head);
    }
    for (int split = first; split < end; ++split) {
      Sums<kVectors> parts[kRows];
      ScanSplit<Kv, kVectors, kRows>(a, queries, split, weights, parts);
      WEFT_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r].Add(parts[r]);
    }
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (at + r < group.n_rows) PutPartial(a, rows[at + r], head, first, sums[r]);
    }
  }
}

template <typename Kv, int kVectors>
WEFT_DEVICE void AttendOneSplit(const AttendArgs& a) {
  WEFT_SHARED(float, weights, 32);
  const int row = BlockY(), head = BlockX();
  if (row >= *a.step.n_rows) return;
  const Query query(a, row, head);
  const int split = query.first / kSplitTokens + BlockZ();
  if (split > query.last / kSplitTokens || split < SplitsSeen(a, row)) return;
  Sums<kVectors> sums;
  ScanSplit<Kv, kVectors, 1>(a, &query, split, weights, &sums);
  PutPartial(a, row, head, BlockZ(), sums);
}

template <int kVectors>
WEFT_DEVICE void Merge(const AttendArgs& a) {
  const int row = BlockY(), head = BlockX();
  if (row >= *a.step.n_rows) return;
  const Query query(a, row, head);
  const int n = query.last / kSplitTokens - query.first / kSplitTokens + 1;
  Sums<kVectors> sums;
  for (int split = 0; split < n; ++split) {
    Sums<kVectors> part;
    GetPartial(a, row, head, split, &part);
    sums.Add(part);
  }
  Finish(a, row, head, sums);
}

#define WEFT_DEFINE_ATTEND_(type, vectors)                                    \
  WEFT_COOPERATIVE_KERNEL(Attend##type##_##vectors, AttendArgs, 32) {         \
    AttendAll<KvOf##type, vectors>(a);                                        \
  }                                                                           \
  WEFT_COOPERATIVE_KERNEL(AttendSplits##type##_##vectors, AttendArgs, 32) {   \
    AttendOneSplit<KvOf##type, vectors>(a);                                   \
  }                                                                           \
  WEFT_COOPERATIVE_KERNEL(AttendTogether##type##_##vectors, AttendArgs, 32) { \
    AttendGroup<KvOf##type, vectors>(a);                                      \
  }
WEFT_ALL_KV_KERNELS(WEFT_DEFINE_ATTEND_)

WEFT_KERNEL(MergeSplits2, AttendArgs) { Merge<2>(a); }
WEFT_KERNEL(MergeSplits4, AttendArgs) { Merge<4>(a); }
WEFT_KERNEL(MergeSplits8, AttendArgs) { Merge<8>(a); }
WEFT_KERNEL(MergeSplits16, AttendArgs) { Merge<16>(a); }

WEFT_KERNEL(StoreKvF32, StoreArgs) { StoreGroups<KvOfF32>(a); }
WEFT_KERNEL(StoreKvF16, StoreArgs) { StoreGroups<KvOfF16>(a); }
WEFT_KERNEL(StoreKvBF16, StoreArgs) { StoreGroups<KvOfBF16>(a); }
WEFT_KERNEL(StoreKvQ8_0, StoreArgs) { StoreGroups<KvOfQ8_0>(a); }

}  // namespace weft::device
