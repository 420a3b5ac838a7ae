#include "engine/sessions/message_starts.h"

#include <algorithm>

namespace weft {
namespace {

// Between two control tokens, at most this many belong to headers: roles and line feeds.
constexpr int64_t kHeaderTokens = 8;

}  // namespace

std::vector<int64_t> MessageStarts(std::span<const TokenId> tokens,
                                   const std::function<bool(TokenId)>& is_control) {
  std::vector<int64_t> starts;
  int64_t next = 0;  // control token
  for (int64_t i = std::ssize(tokens); i-- > 0 && starts.size() < 2;) {
    if (!is_control(tokens[static_cast<size_t>(i)])) continue;
    if (starts.empty() || next - i - 1 > kHeaderTokens) starts.push_back(i + 1);
    next = i;
  }
  std::reverse(starts.begin(), starts.end());
  return starts;
}

}  // namespace weft
