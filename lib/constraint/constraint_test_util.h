#ifndef WEFT_CONSTRAINT_CONSTRAINT_TEST_UTIL_H_
#define WEFT_CONSTRAINT_CONSTRAINT_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "constraint/constraint.h"

namespace weft::constraint {

// The tokens that a state's mask allows, in ascending order.
inline std::vector<TokenId> AllowedTokens(const ConstraintState& state, const TokenTable& table) {
  // Whatever was there before is overwritten.
  std::vector<uint32_t> mask(table.mask_words(), 0xDEADBEEF);
  state.FillMask(mask);
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < table.size(); ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
  }
  return allowed;
}

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_TEST_UTIL_H_
