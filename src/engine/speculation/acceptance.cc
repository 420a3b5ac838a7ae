#include "engine/speculation/acceptance.h"

#include <algorithm>
#include <iterator>

namespace weft {
namespace {

// The initial rates by length class, and how many guesses they weigh.
constexpr float kFirst[] = {0.3f, 0.4f, 0.3f, 0.5f, 0.65f, 0.8f};
constexpr float kNext[] = {0.5f, 0.6f, 0.6f, 0.75f, 0.85f, 0.93f};
constexpr float kOfDrafts[] = {0.3f, 0.4f, 0.55f, 0.7f, 0.85f, 0.95f};
constexpr int kWeight = 4;
// A rate averages about this many of the latest guesses.
constexpr int kMemory = 32;

}  // namespace

Acceptance::Acceptance() {
  for (auto& source : kinds_) {
    for (size_t i = 0; i < kLengths; ++i) {
      source[i].first.share = kFirst[i];
      source[i].next.share = kNext[i];
    }
  }
  auto& drafts = kinds_[static_cast<size_t>(GuessSource::kDraft)];
  for (size_t i = 0; i < kLengths; ++i) {
    drafts[i].first.share = drafts[i].next.share = kOfDrafts[i];
  }
}

// Returns one length of each length class.
int64_t Acceptance::LengthOf(float chance) {
  constexpr float kAbove[] = {0.3f, 0.45f, 0.6f, 0.8f, 0.95f};
  constexpr int64_t kLengthOf[] = {0, 1, 3, 4, 8, 16};
  size_t i = 0;
  while (i < std::size(kAbove) && chance >= kAbove[i]) ++i;
  return kLengthOf[i];
}

size_t Acceptance::LengthClass(int64_t length) {
  if (length < 3) return length > 0 ? 1 : 0;
  return length < 4 ? 2 : length < 8 ? 3 : length < 16 ? 4 : 5;
}

void Acceptance::Note(GuessSource source, int64_t length, bool is_first, bool right) {
  Kind& kind = kinds_[static_cast<size_t>(source)][LengthClass(length)];
  Share& share = is_first ? kind.first : kind.next;
  share.times = std::min(share.times + 1, kMemory);
  share.share += ((right ? 1.0f : 0.0f) - share.share) / static_cast<float>(share.times + kWeight);
}

}  // namespace weft
