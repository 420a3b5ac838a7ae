// Token ids.
#ifndef WEFT_BASE_TOKENS_H_
#define WEFT_BASE_TOKENS_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace weft {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

// Length of the common prefix of `a` and `b`.
inline int64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace weft

#endif  // WEFT_BASE_TOKENS_H_
