#include "base/best_tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

// Split into lanes, which the compiler vectorises, because vocabularies are large.
float Greatest(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float max = *std::max_element(lanes.begin(), lanes.end());
  for (; i < values.size(); ++i) max = values[i] > max ? values[i] : max;
  return max;
}

bool IsSound(std::span<const float> logits) {
  // NaN and plus infinity have bits from infinity up; minus infinity is a valid ban.
  constexpr uint32_t kInfinity = 0x7F800000;
  constexpr uint32_t kSignBit = 0x80000000;
  uint32_t broken = 0;
  for (const float logit : logits) {
    const auto bits = std::bit_cast<uint32_t>(logit);
    const bool is_number = (bits & ~kSignBit) < kInfinity;
    broken |= is_number || bits == (kInfinity | kSignBit) ? 0 : 1;
  }
  return broken == 0 && Greatest(logits) > kNever;
}

TokenId ArgMax(std::span<const float> logits) {
  const float max = Greatest(logits);
  if (max == kNever) return kNoToken;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

size_t FindBest(std::span<const float> logits, std::span<TokenLogit> best) {
  // A heap with the worst of the kept tokens at the front. Most blocks have nothing better.
  constexpr size_t kBlock = 64;
  float worst = kNever;
  size_t n = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, logits.size());
    if (!(Greatest(logits.subspan(begin, end - begin)) > worst)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (!(logits[i] > worst)) continue;
      if (n == best.size()) {
        std::pop_heap(best.begin(), best.end(), IsBetter);
        --n;
      }
      best[n++] = {static_cast<TokenId>(i), logits[i]};
      std::push_heap(best.begin(), best.begin() + static_cast<ptrdiff_t>(n), IsBetter);
      if (n == best.size()) worst = best.front().logit;
    }
  }
  std::sort_heap(best.begin(), best.begin() + static_cast<ptrdiff_t>(n), IsBetter);
  return n;
}

}  // namespace weft
