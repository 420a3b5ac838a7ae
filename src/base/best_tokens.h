// The best tokens of a row of logits: by logit, equal ones by id, the lower first. What a sampler
// and a backend do so is the same.
#ifndef WEFT_BASE_BEST_TOKENS_H_
#define WEFT_BASE_BEST_TOKENS_H_

#include <cstddef>
#include <span>

#include "base/tokens.h"

namespace weft {

struct TokenLogit {
  TokenId token = kNoToken;
  float logit = 0;
};
inline bool IsBetter(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The greatest value that is not NaN, or minus infinity.
float Greatest(std::span<const float> values);

// Whether a token can be chosen from the row: no NaN or plus infinity, and not all minus infinity.
bool IsSound(std::span<const float> logits);

// The token with the largest logit, the lowest id among ties. kNoToken if none is above minus
// infinity.
TokenId ArgMax(std::span<const float> logits);

// Fills `best`, which has room for at least one, with the row's best tokens, best first; fewer,
// where not as many are above minus infinity. Returns their number.
size_t FindBest(std::span<const float> logits, std::span<TokenLogit> best);

}  // namespace weft

#endif  // WEFT_BASE_BEST_TOKENS_H_
