// Where other prompts are likely to leave this one, as far as its control tokens tell. The next
// prompt of a conversation often differs from here on: the same conversation with another last
// message, or with the last reply written otherwise than the model wrote it (without its reasoning,
// for example).
//
// Pure functions; any thread.
#ifndef WEFT_ENGINE_SESSIONS_MESSAGE_STARTS_H_
#define WEFT_ENGINE_SESSIONS_MESSAGE_STARTS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/tokens.h"

namespace weft {

// The position after the last control token, where the reply's header or the reply begins; and
// before it the start of the last message: the position after the last control token that is
// followed by more tokens than a header has. Ascending; empty without control tokens.
std::vector<int64_t> MessageStarts(std::span<const TokenId> tokens,
                                   const std::function<bool(TokenId)>& is_control);

}  // namespace weft

#endif  // WEFT_ENGINE_SESSIONS_MESSAGE_STARTS_H_
