// The one number everybody agrees on: a token id.
#ifndef WEFT_BASE_TOKENS_H_
#define WEFT_BASE_TOKENS_H_

#include <cstdint>

namespace weft {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

}  // namespace weft

#endif  // WEFT_BASE_TOKENS_H_
