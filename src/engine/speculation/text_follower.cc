#include "engine/speculation/text_follower.h"

#include <algorithm>

namespace weft {
namespace {

// How far from where it was left, and for how many tokens, a text is resumed by position.
constexpr int64_t kBack = 4;
constexpr int64_t kAhead = 24;
constexpr int64_t kLongestSearch = 24;

}  // namespace

void TextFollower::Follow(std::span<const TokenId> text, TokenId token) {
  ++since_;
  if (at_ < 0) return;
  const bool same = at_ < std::ssize(text) && text[static_cast<size_t>(at_)] == token;
  if (same) {
    ++kept_;
    ++at_;
    ++length_;
    return;
  }
  if (length_ >= kWorthReturning) {
    left_at_ = at_;
    since_ = 1;
  }
  at_ = -1;
  length_ = 0;
}

NgramIndex::Match TextFollower::Next(std::span<const TokenId> text, const NgramIndex& index,
                                     std::span<const TokenId> context) {
  NgramIndex::Match best;
  if (at_ >= 0 && at_ < std::ssize(text)) best = {at_, length_};
  const NgramIndex::Match found = index.Find(text, context);
  // Copying continues, unless more tokens match elsewhere.
  const int64_t followed = std::min(best.length, NgramIndex::kLongestMatch);
  if (found.next >= 0 && (best.next < 0 || found.length > followed)) best = found;
  if (best.next < 0) best = NearWhereItLeft(text, context);
  at_ = best.next;
  length_ = best.length;
  return best;
}

// After an edit: the nearest position after an occurrence of the last token. Right after leaving
// the text, also the position itself, as if one token had been replaced.
NgramIndex::Match TextFollower::NearWhereItLeft(std::span<const TokenId> text,
                                                std::span<const TokenId> context) const {
  if (left_at_ < 0 || since_ > kLongestSearch || context.empty()) return {};
  const int64_t expected = left_at_ + since_;  // where it would be if nothing had moved
  const int64_t size = std::ssize(text);
  NgramIndex::Match best;
  int64_t nearest = kAhead + 1;
  for (int64_t at = std::max<int64_t>(1, expected - kBack); at < std::min(size, expected + kAhead);
       ++at) {
    if (text[static_cast<size_t>(at - 1)] != context.back()) continue;
    const int64_t distance = at < expected ? expected - at : at - expected;
    if (distance >= nearest) continue;
    nearest = distance;
    best = {at, 1};
  }
  if (best.next >= 0) return best;
  if (since_ == 1 && expected < size) return {expected, 0};
  return {};
}

}  // namespace weft
