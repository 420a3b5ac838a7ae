#include "kernels_gpu/best.h"

#include "device/dialect.h"
#include "kernels_gpu/math.h"

namespace weft::device {

constexpr int kBestWarps = kBestThreads / 32;
constexpr uint32_t kInfinityBits = 0x7F800000u;

// Better than any token that there is, and worse than any.
WEFT_DEVICE BestToken BestOfAll() { return {-1, FloatOf(kInfinityBits)}; }
WEFT_DEVICE BestToken WorstOfAll() { return {0x7FFFFFFF, FloatOf(kInfinityBits | 0x80000000u)}; }
WEFT_DEVICE bool IsNone(const BestToken& a) { return a.token == 0x7FFFFFFF; }
WEFT_DEVICE BestToken Missing() { return {-1, FloatOf(0x7FC00000u)}; }
WEFT_DEVICE bool IsBetter(const BestToken& a, const BestToken& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The best of all threads' tokens, in each of them. The arrays are shared, a word per warp.
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

// Whether some thread of the block says so.
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

WEFT_COOPERATIVE_KERNEL(FindBest, BestArgs, kBestThreads) {
  WEFT_SHARED(float, logits, kBestWarps);
  WEFT_SHARED(int32_t, tokens, kBestWarps);
  const int row = BlockY(), slice = BlockX(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0) return;
  const float* const values = a.logits.values + row * a.logits.stride;
  const float never = WorstOfAll().logit;
  float mine[kBestEach];
  bool broken = false;  // NaN, or plus infinity
  WEFT_UNROLL
  for (int i = 0; i < kBestEach; ++i) {
    const int token = slice * kBestSlice + i * kBestThreads + t;
    mine[i] = token < a.n_vocab ? values[token] : never;
    const uint32_t bits = BitsOf(mine[i]);
    broken = broken || ((bits & 0x7FFFFFFFu) >= kInfinityBits && bits != BitsOf(never));
  }
  BestToken* const out = a.parts + (static_cast<int64_t>(row) * a.n_slices + slice) * a.most;
  if (AnyOfBlock(broken, logits)) {
    if (t == 0) out[0] = Missing();
    return;
  }
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
  // How many of each slice are taken. Thread t looks at slices t, t + kBestThreads ...
  WEFT_SHARED(int32_t, taken, kMostBestSlices);
  const int row = BlockY(), t = ThreadIndex();
  if (row >= *a.n_rows || a.n_best[row] == 0) return;
  const BestToken* const parts = a.parts + static_cast<int64_t>(row) * a.n_slices * a.most;
  BestToken* const out = a.out + static_cast<int64_t>(row) * a.most;
  bool broken = false;
  for (int slice = t; slice < a.n_slices; slice += kBestThreads) {
    taken[slice] = 0;
    const float first = parts[static_cast<int64_t>(slice) * a.most].logit;
    broken = broken || first != first;
  }
  if (AnyOfBlock(broken, logits)) {
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
      if (t == 0) out[n] = Missing();
      return;
    }
    if (from >= 0 && best.token == chosen.token) taken[from] = taken[from] + 1;
    if (t == 0) out[n] = chosen;
  }
}

}  // namespace weft::device
