// Token ids, and ids of input embeddings that stand in a text where tokens do ("rows").
#ifndef WEFT_BASE_TOKENS_H_
#define WEFT_BASE_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace weft {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;
// Stands for a row where it does not matter which. All ids below kNoToken are those of rows.
inline constexpr TokenId kAnyRow = -2;
constexpr bool IsRow(TokenId id) { return id < kNoToken; }

// Positions [begin, end) of a text, or of a part of it.
struct TokenRun {
  int64_t begin, end;
  bool operator==(const TokenRun&) const = default;
};

// The largest number of first tokens, up to `n`, that cuts none of the runs.
inline int64_t WithoutCut(std::span<const TokenRun> runs, int64_t n) {
  for (const TokenRun& run : runs) {
    if (run.begin < n && n < run.end) return run.begin;
  }
  return n;
}

// Length of the common prefix of `a` and `b`.
inline int64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace weft

#endif  // WEFT_BASE_TOKENS_H_
