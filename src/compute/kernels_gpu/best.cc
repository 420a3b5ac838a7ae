#include "compute/kernels_gpu/best.h"

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/math.h"

namespace weft::device {

constexpr int kBestWarps = kBestThreads / 32;
constexpr uint32_t kInfinityBits = 0x7F800000u;
// State of a slice, before changes.
constexpr int kNothing = 0, kSomething = 1, kBroken = 2;

// Placeholders that are better, or worse, than any token.
WEFT_DEVICE BestToken BestOfAll() { return {-1, FloatOf(kInfinityBits)}; }
WEFT_DEVICE BestToken WorstOfAll() { return {0x7FFFFFFF, FloatOf(kInfinityBits | 0x80000000u)}; }
WEFT_DEVICE bool IsNone(const BestToken& a) { return a.token == 0x7FFFFFFF; }
WEFT_DEVICE BestToken Missing() { return {-1, FloatOf(0x7FC00000u)}; }
WEFT_DEVICE bool IsBetter(const BestToken& a, const BestToken& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The best of all threads' tokens, returned to every thread. The arrays are shared memory, one word
// per warp.
template <typename Floats, typename Words>
WEFT_DEVICE BestToken BestOfBlock(BestToken mine, Floats& logits, Words& tokens) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const BestToken other = {
        static_cast<int32_t>(BitsOf(ShuffleXor(FloatOf(static_cast<uint32_t>(mine.token)), mask))),
        ShuffleXor(mine.logit, mask)};
    if (IsBetter(other, mine)) mine = other;
  }
  if (ThreadIndex() % 32 == 0) {
    logits[ThreadIndex() / 32] = mine.logit;
    tokens[ThreadIndex() / 32] = mine.token;
  }
  Barrier();
  for (int i = 0; i < kBestWarps; ++i) {
    const BestToken other = {tokens[i], logits[i]};
    if (IsBetter(other, mine)) mine = other;
  }
  Barrier();
  return mine;
}

// Whether `mine` is true in any thread of the block.
template <typename Floats>
WEFT_DEVICE bool AnyOfBlock(bool mine, Floats& shared) {
  const float warp = WarpMax(mine ? 1.0f : 0.0f);
  if (ThreadIndex() % 32 == 0) shared[ThreadIndex() / 32] = warp;
  Barrier();
  float any = 0.0f;
  for (int i = 0; i < kBestWarps; ++i) any = Max(any, shared[i]);
  Barrier();
  return any > 0.0f;
}

WEFT_DEVICE bool Allows(const BestArgs& a, int mask, int token) {
  return mask < 0 || (a.allowed[mask + token / 32] >> (token % 32) & 1) != 0;
}

WEFT_COOPERATIVE_KERNEL(ChangeRows, BestArgs, kBestThreads) {
  WEFT_SHARED(float, shared, kBestWarps);
  const int row = BlockY(), slice = BlockX(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0) return;
  float* const values = a.logits.values + row * a.logits.stride;
  const float never = WorstOfAll().logit;
  const int mask = a.masks[row];
  bool broken = false, something = false;  // broken: NaN, or plus infinity
  for (int i = 0; i < kBestEach; ++i) {
    const int token = slice * kBestSlice + i * kBestThreads + t;
    if (token >= a.n_vocab) continue;
    const uint32_t bits = BitsOf(values[token]);
    const bool is_number = (bits & 0x7FFFFFFFu) < kInfinityBits;
    something = something || is_number;
    broken = broken || (!is_number && bits != BitsOf(never));
    if (!Allows(a, mask, token)) values[token] = never;
  }
  // Its barriers also separate the reads above from the writes below.
  const bool any_broken = AnyOfBlock(broken, shared);
  const bool any_number = AnyOfBlock(something, shared);
  if (t == 0) {
    a.sound[row * a.n_slices + slice] = any_broken ? kBroken : any_number ? kSomething : kNothing;
  }
  for (int i = a.first_changes[row] + t; i < a.first_changes[row + 1]; i += kBestThreads) {
    const TokenChange change = a.changes[i];
    if (change.token / kBestSlice != slice || !Allows(a, mask, change.token)) continue;
    float logit = values[change.token] + change.bias;
    logit = logit > 0.0f ? logit / change.repetition : logit * change.repetition;
    values[change.token] = logit - change.penalty;
  }
}

WEFT_COOPERATIVE_KERNEL(FindBest, BestArgs, kBestThreads) {
  WEFT_SHARED(float, logits, kBestWarps);
  WEFT_SHARED(int32_t, tokens, kBestWarps);
  const int row = BlockY(), slice = BlockX(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0) return;
  const float* const values = a.logits.values + row * a.logits.stride;
  const float never = WorstOfAll().logit;
  float mine[kBestEach];
  WEFT_UNROLL
  for (int i = 0; i < kBestEach; ++i) {
    const int token = slice * kBestSlice + i * kBestThreads + t;
    mine[i] = token < a.n_vocab ? values[token] : never;
  }
  BestToken* const out = a.parts + (static_cast<int64_t>(row) * a.n_slices + slice) * a.most;
  BestToken last = BestOfAll();
  for (int n = 0; n < a.n_best[row]; ++n) {
    BestToken best = WorstOfAll();
    WEFT_UNROLL
    for (int i = 0; i < kBestEach; ++i) {
      const BestToken candidate = {slice * kBestSlice + i * kBestThreads + t, mine[i]};
      if (candidate.logit > never && IsBetter(last, candidate) && IsBetter(candidate, best)) {
        best = candidate;
      }
    }
    last = BestOfBlock(best, logits, tokens);
    if (t == 0) out[n] = last;
    if (IsNone(last)) return;
  }
}

WEFT_COOPERATIVE_KERNEL(MergeBest, BestArgs, kBestThreads) {
  WEFT_SHARED(float, logits, kBestWarps);
  WEFT_SHARED(int32_t, tokens, kBestWarps);
  // Number of tokens already taken from each slice. Thread t handles slices t, t + kBestThreads ...
  WEFT_SHARED(int32_t, taken, kMaxBestSlices);
  const int row = BlockY(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0) return;
  const BestToken* const parts = a.parts + static_cast<int64_t>(row) * a.n_slices * a.most;
  BestToken* const out = a.out + static_cast<int64_t>(row) * a.most;
  bool broken = false, something = false;
  for (int slice = t; slice < a.n_slices; slice += kBestThreads) {
    taken[slice] = 0;
    const int sound = a.sound[row * a.n_slices + slice];
    broken = broken || sound == kBroken;
    something = something || sound == kSomething;
  }
  const bool any_broken = AnyOfBlock(broken, logits);
  const bool any_number = AnyOfBlock(something, logits);
  if (any_broken || !any_number) {
    if (t == 0) out[0] = Missing();
    return;
  }
  const int n_best = a.n_best[row];
  for (int n = 0; n < n_best; ++n) {
    BestToken best = WorstOfAll();
    int from = -1;
    for (int slice = t; slice < a.n_slices; slice += kBestThreads) {
      const int at = taken[slice];
      if (at == n_best) continue;
      const BestToken candidate = parts[static_cast<int64_t>(slice) * a.most + at];
      if (!IsNone(candidate) && IsBetter(candidate, best)) {
        best = candidate;
        from = slice;
      }
    }
    const BestToken chosen = BestOfBlock(best, logits, tokens);
    if (IsNone(chosen)) {
      if (t == 0) out[n] = n > 0 ? Missing() : BestToken{-1, WorstOfAll().logit};
      return;
    }
    if (from >= 0 && best.token == chosen.token) taken[from] = taken[from] + 1;
    if (t == 0) out[n] = chosen;
  }
}

// e^x for -87 <= x <= 0, with the same bits as base/best_tokens.cc.
WEFT_DEVICE float ExpOfNegative(float x) {
  const float z = x * 1.44269504f + 12582912.0f;
  const float n = z - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0.00139262134663f * r + 0.00836320297158f;
  p = p * r + 0.0416665544377f;
  p = p * r + 0.16666576846f;
  p = p * r + 0.5f;
  const float y = 1.0f + (p * (r * r) + r);
  return FloatOf(BitsOf(y) + (BitsOf(z) << 23));
}

// For each part of kWeightPart values, with one thread per lane of the definition.
WEFT_COOPERATIVE_KERNEL(WeighRows, BestArgs, kWeightThreads) {
  WEFT_SHARED(float, lanes, kWeightThreads);
  const int row = BlockY(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0 || a.temperatures[row] == 0.0f) return;
  const float* const values = a.logits.values + row * a.logits.stride;
  const float max = a.out[static_cast<int64_t>(row) * a.most].logit;
  const float temperature = a.temperatures[row];
  const int part = (BlockX() * kWeightThreads + t) / kWeightLanes;
  const int end = Min((part + 1) * kWeightPart, a.n_vocab);
  float sum = 0.0f;
  for (int i = part * kWeightPart + t % kWeightLanes; i < end; i += kWeightLanes) {
    const float x = (values[i] - max) / temperature;
    sum = sum + ExpOfNegative(x > -87.0f ? x : -87.0f);
  }
  lanes[t] = sum;
  Barrier();
  if (t % kWeightLanes != 0 || part >= a.n_weights) return;
  double total = 0.0;
  for (int i = 0; i < kWeightLanes; ++i) total = total + static_cast<double>(lanes[t + i]);
  a.weights[static_cast<int64_t>(row) * a.n_weights + part] = total;
}

}  // namespace weft::device
