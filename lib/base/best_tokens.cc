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

// e^x for -87 <= x <= 0, within 2e-7; lane-wise like Greatest. Same method as the kernels: x = n ln
// 2 + r, and the low bits of 1.5 * 2^23 + n are n.
inline float ExpOfNegative(float x) {
  const float z = x * 1.44269504f + 12582912.0f;
  const float n = z - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0.00139262134663f * r + 0.00836320297158f;
  p = p * r + 0.0416665544377f;
  p = p * r + 0.16666576846f;
  p = p * r + 0.5f;
  const float y = 1.0f + (p * (r * r) + r);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(z) << 23));
}

}  // namespace

double TotalWeight(std::span<const float> logits, float max, float temperature) {
  const auto weight = [&](float logit) {
    const float x = (logit - max) / temperature;
    return ExpOfNegative(x > -87.0f ? x : -87.0f);
  };
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kWeightPart) {
    const size_t end = std::min(begin + kWeightPart, logits.size());
    std::array<float, kWeightLanes> lanes = {};
    size_t i = begin;
    for (; i + kWeightLanes <= end; i += kWeightLanes) {
      for (size_t lane = 0; lane < kWeightLanes; ++lane) lanes[lane] += weight(logits[i + lane]);
    }
    for (size_t lane = 0; i < end; ++i, ++lane) lanes[lane] += weight(logits[i]);
    double sum = 0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    total += sum;
  }
  return total;
}

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
