// What a token is chosen from: a row of logits, changed by bias and penalties, its best tokens and
// its weight. The best are ordered by logit, equal ones by id, the lower first. What a sampler and
// a backend do so is the same.
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

// Changes to a token's logit before sampling: a bias, then penalties.
struct LogitChange {
  TokenId token = kNoToken;
  float bias = 0;        // added
  float repetition = 1;  // divides positive logits, multiplies others
  float penalty = 0;     // subtracted
};
inline float Changed(float logit, const LogitChange& change) {
  logit += change.bias;
  logit = logit > 0 ? logit / change.repetition : logit * change.repetition;
  return logit - change.penalty;
}

// The sum of e^((logit - max) / temperature), where `max` is the greatest logit. Values are added
// in parts of kWeightPart, in each of them in kWeightLanes lanes, value i in lane i % kWeightLanes,
// as floats; then the lanes of a part, and the parts, in order, as doubles.
inline constexpr size_t kWeightPart = 1024, kWeightLanes = 16;
double TotalWeight(std::span<const float> logits, float max, float temperature);

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
