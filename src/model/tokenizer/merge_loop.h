// The core of byte-pair and SentencePiece encoding: among all neighbouring symbols that may be
// merged, merge the pair with the lowest priority number, the leftmost of equals, until no pair is
// left.
//
// Any word of n symbols costs O(n log n); short words are scanned in place, which is faster than a
// queue.
#ifndef WEFT_MODEL_TOKENIZER_MERGE_LOOP_H_
#define WEFT_MODEL_TOKENIZER_MERGE_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace weft {

// A symbol: a part of the word, and a number whose meaning the rules define.
struct MergeSymbol {
  int32_t id;
  uint32_t begin;
  uint32_t bytes;
};

struct MergeCandidate {
  static constexpr uint32_t kNever = UINT32_MAX;

  uint32_t priority = kNever;
  int32_t id = -1;  // the merged symbol's
};

// Memory reused between words; one per encoding call.
struct MergeScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<MergeCandidate> candidates;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> queue;
  // The work done: pairs looked up and queue entries handled so far.
  uint64_t steps = 0;
};

namespace merge_internal {

inline constexpr size_t kShortWord = 24;

template <typename Lookup>
void MergeShort(MergeScratch* scratch, const Lookup& lookup) {
  std::vector<MergeSymbol>& symbols = scratch->symbols;
  size_t n = symbols.size();
  MergeCandidate pairs[kShortWord];
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = lookup(symbols[i], symbols[i + 1]);
  scratch->steps += n;
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].priority < pairs[best].priority) best = i;
    }
    if (pairs[best].priority == MergeCandidate::kNever) break;
    symbols[best].id = pairs[best].id;
    symbols[best].bytes += symbols[best + 1].bytes;
    std::copy(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    std::copy(pairs + best + 1, pairs + n - 1, pairs + best);
    --n;
    if (best > 0) pairs[best - 1] = lookup(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = lookup(symbols[best], symbols[best + 1]);
    scratch->steps += 2;
  }
  symbols.resize(n);
}

// The symbols stay in place, linked; the queue holds priority << 32 | index of the left symbol. An
// entry is stale if that symbol's candidate has changed since.
template <typename Lookup>
void MergeLong(MergeScratch* scratch, const Lookup& lookup) {
  std::vector<MergeSymbol>& symbols = scratch->symbols;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<MergeCandidate>& pairs = scratch->candidates;
  std::vector<uint32_t>& previous = scratch->previous;
  std::vector<uint32_t>& next = scratch->next;
  std::vector<uint64_t>& queue = scratch->queue;
  pairs.assign(n, MergeCandidate());
  previous.resize(n);
  next.resize(n);
  queue.clear();
  const auto entry = [&](uint32_t i) { return uint64_t{pairs[i].priority} << 32 | i; };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // for the first: n or more
    next[i] = i + 1;
    if (i + 1 == n) break;
    pairs[i] = lookup(symbols[i], symbols[i + 1]);
    if (pairs[i].priority != MergeCandidate::kNever) queue.push_back(entry(i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  scratch->steps += n;

  const auto renew = [&](uint32_t i) {
    ++scratch->steps;
    pairs[i] = next[i] < n ? lookup(symbols[i], symbols[next[i]]) : MergeCandidate();
    if (pairs[i].priority == MergeCandidate::kNever) return;
    queue.push_back(entry(i));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t top = queue.back();
    queue.pop_back();
    ++scratch->steps;
    const auto left = static_cast<uint32_t>(top);
    if (pairs[left].priority != static_cast<uint32_t>(top >> 32)) continue;
    const uint32_t right = next[left];
    symbols[left].id = pairs[left].id;
    symbols[left].bytes += symbols[right].bytes;
    symbols[right].bytes = 0;
    pairs[right] = MergeCandidate();
    next[left] = next[right];
    if (next[left] < n) previous[next[left]] = left;
    renew(left);
    if (previous[left] < n) renew(previous[left]);
  }
  symbols.erase(std::remove_if(symbols.begin(), symbols.end(),
                               [](const MergeSymbol& s) { return s.bytes == 0; }),
                symbols.end());
}

}  // namespace merge_internal

// Merges scratch->symbols in place. `lookup(left, right)` returns the merged symbol and its
// priority, or a candidate of priority kNever. REQUIRES: no symbol is empty.
template <typename Lookup>
void MergeSymbols(MergeScratch* scratch, const Lookup& lookup) {
  if (scratch->symbols.size() <= merge_internal::kShortWord) {
    merge_internal::MergeShort(scratch, lookup);
  } else {
    merge_internal::MergeLong(scratch, lookup);
  }
}

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_MERGE_LOOP_H_
