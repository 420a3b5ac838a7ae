// Attention of one thread block to the splits of one item (attention.h).
//
// A warp has kQueries of the item's queries and computes a whole split at once. For the scores, a
// lane multiplies four positions by each query. For the sums, a lane has four or more dimensions,
// and takes the values position by position. The block loads keys and values together into stages
// in shared memory, while it computes: a stage holds some dimensions of the whole split's keys, or
// the values of some positions.
#ifndef WEFT_COMPUTE_KERNELS_GPU_ATTEND_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_ATTEND_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/attend_rows_device.h"
#include "compute/kernels_gpu/attend_stage_device.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/kv_device.h"
#include "compute/kernels_gpu/math.h"

namespace weft::device {

// Layout of shared memory, in words: stages, addresses in pages, facts about the queries; then for
// each warp its queries, dimension by dimension, and the weights of two blocks of positions,
// position by position.
template <int kStages>
struct AttendPlaces {
  static constexpr int kUnits = kStages * kStageWords;
  static constexpr int kQueryFacts = kUnits + kUnitsWords;
  static constexpr int kWarps = kQueryFacts + kFactWords;
};
enum QueryFact { kRowFact, kHeadFact, kPositionFact, kFirstFact, kLastFact, kMaxFact, kWeightFact };

// Attention computed by one thread block.
template <typename Kv, int kVectors, AttendKind kKind, typename Shared>
struct Attender {
  static constexpr int kQueries = AttendQueries(kVectors, kKind);
  static constexpr int kStages = AttendStages(kVectors, kKind);
  static constexpr int kEach = kVectors < 4 ? kVectors : 4;  // contiguous dimensions
  static constexpr int kRuns = kVectors / kEach;
  using Shape = StageShape<Kv, kVectors>;
  using Places = AttendPlaces<kStages>;

  const AttendArgs& a;
  Shared& words;
  AttendItem item;
  int n_queries = 0;               // queries of the block
  int lane, its_queries, weights;  // the warp's first query; first word of its weights
  int q_words;                     // the first word of the warp's queries
  int first, last;                 // positions that the block sees
  int all_from, all_to;            // positions that all queries of the warp see
  int any_from, any_to;            // positions that any query of the warp sees
  float sums[kQueries]
            [kVectors];       // lane's dimensions: kEach from kEach * lane on, 32 * kEach behind
  float scores[kQueries][4];  // of the lane's positions; later their weights
  float factors[kQueries];    // scale earlier sums to the maximum of the lane's block of positions

  WEFT_DEVICE Attender(const AttendArgs& args, Shared& shared, const AttendItem& its_item)
      : a(args), words(shared), item(its_item), lane(ThreadIndex() % 32) {}

  WEFT_DEVICE int FactAt(int query, QueryFact fact) const {
    return Places::kQueryFacts + fact * kMaxBlockQueries + query;
  }
  WEFT_DEVICE int Fact(int query, QueryFact fact) const {
    return static_cast<int>(words[FactAt(query, fact)]);
  }

  // Finds the block's queries; the last warps may repeat the last query. False if there are none.
  WEFT_DEVICE bool FindQueries() {
    const int n_kv_heads = a.n_heads / a.heads_per_kv_head;
    const int all = item.n_rows * a.heads_per_kv_head, each = ThreadCount() / 32 * kQueries;
    const int begin = BlockX() / n_kv_heads * each;
    n_queries = Min(each, all - begin);
    if (n_queries <= 0) return false;
    const int warp = ThreadIndex() / 32;
    its_queries = warp * kQueries;
    q_words = Places::kWarps + warp * AttendWarpWords(kVectors, kKind, a.kv.k_dim);
    weights = q_words + kQueries * (CeilDiv(a.kv.k_dim, 4) * 4);
    for (int i = ThreadIndex(); i < each; i += ThreadCount()) {
      const int query = begin + Min(i, n_queries - 1);
      const int row = a.step.item_rows[item.rows + query / a.heads_per_kv_head];
      const Sight sight(a, row);
      words[FactAt(i, kRowFact)] = static_cast<uint32_t>(row);
      words[FactAt(i, kHeadFact)] = static_cast<uint32_t>(
          BlockX() % n_kv_heads * a.heads_per_kv_head + query % a.heads_per_kv_head);
      words[FactAt(i, kPositionFact)] = static_cast<uint32_t>(sight.position);
      words[FactAt(i, kFirstFact)] = static_cast<uint32_t>(sight.first);
      words[FactAt(i, kLastFact)] = static_cast<uint32_t>(sight.last);
    }
    return true;
  }

  // Finds the range of visible positions and loads the queries. Call it after a barrier.
  WEFT_DEVICE void LoadQueries() {
    first = Fact(0, kFirstFact);
    last = Fact(0, kLastFact);
    for (int i = 1; i < n_queries; ++i) {
      first = Min(first, Fact(i, kFirstFact));
      last = Max(last, Fact(i, kLastFact));
    }
    all_from = any_from = Fact(its_queries, kFirstFact);
    all_to = any_to = Fact(its_queries, kLastFact);
    WEFT_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      const int from = Fact(its_queries + q, kFirstFact), to = Fact(its_queries + q, kLastFact);
      all_from = Max(all_from, from);
      any_from = Min(any_from, from);
      all_to = Min(all_to, to);
      any_to = Max(any_to, to);
      const float* const values = a.q.values + Fact(its_queries + q, kRowFact) * a.q.stride +
                                  Fact(its_queries + q, kHeadFact) * a.q_head;
      for (int d = lane; d < a.kv.k_dim; d += 32) {
        words[q_words + d * kQueries + q] = BitsOf(values[d]);
      }
    }
  }

  // Reads kQueries words of shared memory.
  WEFT_DEVICE void ReadOfQueries(int word, float* x) const {
    if constexpr (kQueries == 2) {
      const Words2 two = ReadWords2(words, word);
      x[0] = FloatOf(two.w[0]);
      x[1] = FloatOf(two.w[1]);
    } else {
      WEFT_UNROLL
      for (int i = 0; i < kQueries; i += 4) {
        const Words4 four = ReadWords4(words, word + i);
        WEFT_UNROLL
        for (int j = 0; j < 4; ++j) x[i + j] = FloatOf(four.w[j]);
      }
    }
  }

  WEFT_DEVICE void MultiplyKey(int keys, int query_words, const float* scales) {
    float key[4], query[kQueries];
    Kv::template Read<4>(words, keys, 0, key);
    if constexpr (Kv::kScaled) {
      WEFT_UNROLL
      for (int j = 0; j < 4; ++j) key[j] = key[j] * scales[j];
    }
    ReadOfQueries(query_words, query);
    WEFT_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      WEFT_UNROLL
      for (int j = 0; j < 4; ++j) scores[q][j] = Fma(key[j], query[q], scores[q][j]);
    }
  }

  // Multiplies by a stage of keys, dimensions from `dim` on.
  WEFT_DEVICE void MultiplyKeys(int stage, int split, int dim) {
    const int mine = split * kSplitTokens + 4 * lane;
    if (mine + 3 < any_from || mine > any_to) return;
    const int n_dims = Min(Shape::kKeyDims, a.kv.k_dim - dim);
    float scales[4];
    if constexpr (Kv::kScaled) {
      KvFloat16::Read<4>(words, stage + Shape::kKeyScales, 4 * lane, scales);
    }
    int keys = stage + lane / 8 * Shape::kKeyBlock + lane % 8 * Kv::kBytes;
    int query_words = q_words + dim * kQueries;
    int d = 0;
    for (; d + 8 <= n_dims; d += 8, keys += 8 * Shape::kKeyRow, query_words += 8 * kQueries) {
      WEFT_UNROLL
      for (int i = 0; i < 8; ++i) {
        MultiplyKey(keys + i * Shape::kKeyRow, query_words + i * kQueries, scales);
      }
    }
    for (; d < n_dims; ++d, keys += Shape::kKeyRow, query_words += kQueries) {
      MultiplyKey(keys, query_words, scales);
    }
  }

  // The sum over the positions of each block, as a tree over neighbours at 16, 8, 4, 2 and 1.
  WEFT_DEVICE static float BlockSum(const float* x) {
    float pairs[4];
    WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      pairs[j] = x[j];
      WEFT_UNROLL
      for (int mask = 4; mask > 0; mask /= 2) pairs[j] += ShuffleXor(pairs[j], mask);
    }
    return (pairs[0] + pairs[2]) + (pairs[1] + pairs[3]);
  }

  // Turns products into scores.
  WEFT_DEVICE void ScaleScores(int split) {
    const int mine = split * kSplitTokens + 4 * lane;
    WEFT_UNROLL
    for (int i = 0; i < 4 * kQueries; ++i) scores[i / 4][i % 4] *= a.scale;
    if (a.softcap > 0.0f) {
      WEFT_UNROLL
      for (int i = 0; i < 4 * kQueries; ++i) {
        scores[i / 4][i % 4] = Softcap(a.softcap, scores[i / 4][i % 4]);
      }
    }
    if (a.slopes != nullptr) {
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const float slope = a.slopes[Fact(its_queries + q, kHeadFact)];
        const int position = Fact(its_queries + q, kPositionFact);
        WEFT_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int distance = mine + j < position ? position - (mine + j) : mine + j - position;
          scores[q][j] = Fma(-slope, static_cast<float>(distance), scores[q][j]);
        }
      }
    }
  }

  // Turns one query's scores into weights, negative at positions it does not see. Blocks are
  // handled in order: each uses the maximum of itself and all blocks before it.
  WEFT_DEVICE void WeighQuery(int split, int q) {
    const int query = its_queries + q, begin = split * kSplitTokens, mine = begin + 4 * lane;
    const int from = Fact(query, kFirstFact), to = Fact(query, kLastFact);
    float most = MinusInfinity();
    WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const bool seen = mine + j >= from && mine + j <= to;
      scores[q][j] = seen ? scores[q][j] : MinusInfinity();
      most = Max(most, scores[q][j]);
    }
    WEFT_UNROLL
    for (int mask = 1; mask <= 4; mask *= 2) most = Max(most, ShuffleXor(most, mask));
    float max = MinusInfinity(), before = max, its_max = max;
    WEFT_UNROLL
    for (int b = 0; b < kSplitBlocks; ++b) {
      const float new_max = Max(max, Shuffle(most, 8 * b));
      if (b == lane / 8) {
        before = max;
        its_max = new_max;
      }
      max = new_max;
    }
    const auto sees = [&](int b) {
      return begin + b * kBlockTokens + kBlockTokens - 1 >= from && begin + b * kBlockTokens <= to;
    };
    factors[q] = sees(lane / 8) ? Exp(before - its_max) : 1.0f;
    float its_weights[4];
    WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const bool seen = mine + j >= from && mine + j <= to;
      its_weights[j] = seen ? Exp(scores[q][j] - its_max) : 0.0f;
      scores[q][j] = seen ? its_weights[j] : -1.0f;
    }
    const float sum = BlockSum(its_weights);
    float weight = 0.0f;
    WEFT_UNROLL
    for (int b = 0; b < kSplitBlocks; ++b) {
      const float next = Fma(weight, Shuffle(factors[q], 8 * b), Shuffle(sum, 8 * b));
      weight = sees(b) ? next : weight;
    }
    if (lane == 0) {
      words[FactAt(query, kMaxFact)] = BitsOf(max);
      words[FactAt(query, kWeightFact)] = BitsOf(weight);
    }
  }

  // The weights of a block of positions, for use after the next barrier. Positions with the same
  // remainder modulo 4 are adjacent.
  WEFT_DEVICE int WeightsAt(int block, int token) const {
    return weights + (block % 2 * kBlockTokens + token % 4 * 8 + token / 4) * kQueries;
  }
  WEFT_DEVICE void PutWeights(int block) {
    if (lane / 8 != block) return;
    WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int at = WeightsAt(block, lane % 8 * 4 + j);
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) words[at + q] = BitsOf(scores[q][j]);
    }
  }

  WEFT_DEVICE void ScaleSums(int block) {
    WEFT_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      const float factor = Shuffle(factors[q], 8 * block);
      WEFT_UNROLL
      for (int i = 0; i < kVectors; ++i) sums[q][i] = sums[q][i] * factor;
    }
  }

  // Adds one position's values. kAll: all of the warp's queries see it.
  template <bool kAll>
  WEFT_DEVICE void AddValue(int stage, int row, int token, int its_weights) {
    float x[kQueries];
    ReadOfQueries(its_weights, x);
    WEFT_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      float value[kEach];
      const int dim = 32 * kEach * r + kEach * lane;
      Kv::template Read<kEach>(words, stage + token * row, dim, value);
      if constexpr (Kv::kScaled) {
        const int at = token * CeilDiv(a.kv.v_dim, kScaleDims) + dim / kScaleDims;
        const uint32_t two = words[stage + Shape::kValueScales + at / 2];
        const float scale = HalfToFloat(static_cast<uint16_t>(two >> (at % 2 * 16)));
        WEFT_UNROLL
        for (int i = 0; i < kEach; ++i) value[i] = value[i] * scale;
      }
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        WEFT_UNROLL
        for (int i = 0; i < kEach; ++i) {
          float& sum = sums[q][kEach * r + i];
          const float next = Fma(x[q], value[i], sum);
          sum = kAll || !(x[q] < 0.0f) ? next : sum;
        }
      }
    }
  }

  // Adds a stage of values, of positions from `position` on.
  WEFT_DEVICE void AddValues(int stage, int row, int position) {
    if (position + Shape::kTokens <= any_from || position > any_to) return;
    if (kRuns == 1 && kEach * lane >= a.kv.v_dim) return;
    const int block = position / kBlockTokens % kSplitBlocks, in_block = position % kBlockTokens;
    if (position >= all_from && position + Shape::kTokens - 1 <= all_to) {
      for (int t = 0; t < Shape::kTokens; t += 4) {
        WEFT_UNROLL
        for (int i = 0; i < 4; ++i) {
          AddValue<true>(stage, row, t + i,
                         WeightsAt(block, 0) + ((in_block + t) / 4 + 8 * i) * kQueries);
        }
      }
      return;
    }
    const int end = Min(Shape::kTokens, any_to + 1 - position);
    for (int t = Max(0, any_from - position); t < end; ++t) {
      AddValue<false>(stage, row, t, WeightsAt(block, in_block + t));
    }
  }

  // Writes one query's sums of a split to its part: its own, or one shared with the splits before.
  WEFT_DEVICE void PutSums(int split, int q) {
    const int query = its_queries + q;
    if (query >= n_queries) return;
    const int row = Fact(query, kRowFact);
    const PartPlaces places(a, row, Fact(query, kFirstFact), Fact(query, kLastFact));
    if (split < places.first || split > places.last) return;
    float* const part = PartAt(a, places.base + places.Of(split), Fact(query, kHeadFact));
    const int n_dims = PartFloats(a.kv.v_dim) - 4;  // up to three floats are padding
    float* const tail = part + n_dims;
    float max = FloatOf(words[FactAt(query, kMaxFact)]);
    float weight = FloatOf(words[FactAt(query, kWeightFact)]);
    const bool joins = split < places.cut, begins = split == places.first;
    float mine = 0.0f, its = 1.0f;
    if (joins) {
      const bool reads = lane == 0 && !begins;
      const float old_max = Shuffle(reads ? tail[0] : MinusInfinity(), 0);
      const float old_weight = Shuffle(reads ? tail[1] : 0.0f, 0);
      const float new_max = Max(old_max, max);
      mine = Exp(old_max - new_max);
      its = Exp(max - new_max);
      weight = Fma(weight, its, old_weight * mine);
      max = new_max;
    }
    const auto joined = [&](float sum, float old) {
      return joins ? Fma(sum, its, old * mine) : sum;
    };
    WEFT_UNROLL
    for (int r = 0; r < kRuns; ++r) {
      const int dim = kEach * (32 * r + lane);
      const float* const run = &sums[q][kEach * r];
      if (kEach == 4 && dim < n_dims) {
        Words4 four = {};
        if (joins && !begins) four = LoadWords4(part + dim);
        WEFT_UNROLL
        for (int i = 0; i < kEach; ++i) {
          four.w[i] = BitsOf(joined(run[i], FloatOf(four.w[i])));
        }
        StoreWords4(part + dim, four);
        continue;
      }
      WEFT_UNROLL
      for (int i = 0; i < kEach; ++i) {
        if (dim + i >= n_dims) continue;
        part[dim + i] = joined(run[i], joins && !begins ? part[dim + i] : 0.0f);
      }
    }
    if (lane == 0) {
      tail[0] = max;
      tail[1] = weight;
    }
  }

  // Order of the stages: for each split, first its keys and then the values of visible positions.
  struct Cursor {
    int split, part;
  };
  WEFT_DEVICE int FirstToken(int split) const {
    return Max(first - split * kSplitTokens, 0) / Shape::kTokens * Shape::kTokens;
  }
  WEFT_DEVICE int EndToken(int split) const {
    return Min(last + 1 - split * kSplitTokens, kSplitTokens);
  }
  template <typename Staging>
  WEFT_DEVICE void Produce(Staging& staging, Cursor& next, int stage) {
    if (next.split < item.end) {
      const int n_keys = CeilDiv(a.kv.k_dim, Shape::kKeyDims);
      if (next.part < n_keys) {
        staging.PutKeys(stage, next.split, next.part++ * Shape::kKeyDims);
      } else {
        const int token = FirstToken(next.split) + (next.part++ - n_keys) * Shape::kTokens;
        staging.PutValues(stage, next.split * kSplitTokens + token);
        if (token + Shape::kTokens >= EndToken(next.split)) next = {next.split + 1, 0};
      }
    }
    CommitCopies();
  }

  WEFT_DEVICE void Run() {
    const int kv_head = BlockX() % (a.n_heads / a.heads_per_kv_head);
    LoadQueries();
    item.first = Max(item.first, first / kSplitTokens);
    item.end = Min(item.end, last / kSplitTokens + 1);
    if (item.first >= item.end) return;
    Stager<Kv, kVectors, Shared> staging(a, words, kv_head, item.table, first, last,
                                         Places::kUnits);
    for (int split = item.first; split < Min(item.end, item.first + kSplitsKnown - 1); ++split) {
      staging.FindUnits(split);
    }
    Barrier();
    Cursor next = {item.first, 0};
    for (int s = 0; s < kStages - 1; ++s) Produce(staging, next, s * kStageWords);
    int at = 0;  // the stage to use next
    const auto step = [&] {
      WaitCopies<kStages - 2>();
      Barrier();
      const int stage = at * kStageWords;
      Produce(staging, next, (at == 0 ? kStages - 1 : at - 1) * kStageWords);
      at = at + 1 == kStages ? 0 : at + 1;
      return stage;
    };
    const int row = staging.value_row;
    for (int split = item.first; split < item.end; ++split) {
      if (split + kSplitsKnown - 1 < item.end) staging.FindUnits(split + kSplitsKnown - 1);
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        WEFT_UNROLL
        for (int j = 0; j < 4; ++j) scores[q][j] = 0.0f;
        WEFT_UNROLL
        for (int i = 0; i < kVectors; ++i) sums[q][i] = 0.0f;
      }
      for (int dim = 0; dim < a.kv.k_dim; dim += Shape::kKeyDims) {
        MultiplyKeys(step(), split, dim);
      }
      ScaleScores(split);
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) WeighQuery(split, q);
      int block = -1;
      for (int token = FirstToken(split); token < EndToken(split); token += Shape::kTokens) {
        const bool begins = token / kBlockTokens != block;
        block = token / kBlockTokens;
        if (begins) PutWeights(block);
        const int stage = step();
        if (begins && ThreadIndex() == 0) CountTile();
        if (begins) ScaleSums(block);
        AddValues(stage, row, split * kSplitTokens + token);
      }
      WEFT_UNROLL
      for (int q = 0; q < kQueries; ++q) PutSums(split, q);
    }
  }
};

template <typename Kv, int kVectors, AttendKind kKind, typename Shared>
WEFT_DEVICE void AttendToItem(const AttendArgs& a, Shared& words) {
  const ItemList list = a.step.item_lists[2 * a.kv.group + a.list];
  if (BlockY() >= list.n) return;
  Attender<Kv, kVectors, kKind, Shared> attender(a, words, a.step.items[list.first + BlockY()]);
  if (!attender.FindQueries()) return;
  Barrier();
  attender.Run();
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_ATTEND_DEVICE_H_
