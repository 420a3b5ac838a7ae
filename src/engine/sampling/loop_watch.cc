#include "engine/sampling/loop_watch.h"

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kLookEvery = 32;

size_t MinLength(size_t block) {
  const size_t least =
      block < LoopWatch::kShortBlock ? LoopWatch::kMinTokensOfShort : LoopWatch::kMinTokens;
  return std::max(least, block * LoopWatch::kMinTimes);
}

}  // namespace

// Reversed, the end of the text has period p over its first n tokens if and only if it has a border
// of length n - p there; the prefix function gives that border for every n.
bool LoopWatch::EndsInLoop(std::span<const TokenId> text) {
  if (text.size() < kMinTokens || text.size() % kLookEvery != 0) return false;
  const size_t length = std::min(text.size(), kLongestBlock * kMinTimes);
  const auto token = [&](size_t i) { return text[text.size() - 1 - i]; };
  border_.assign(length, 0);
  for (size_t i = 1; i < length; ++i) {
    size_t border = border_[i - 1];
    while (border > 0 && token(i) != token(border)) border = border_[border - 1];
    if (token(i) == token(border)) ++border;
    border_[i] = static_cast<uint32_t>(border);
    const size_t n = i + 1;
    if (n >= MinLength(n - border)) return true;
  }
  return false;
}

}  // namespace weft
