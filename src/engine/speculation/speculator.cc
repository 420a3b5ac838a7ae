#include "engine/speculation/speculator.h"

#include <algorithm>
#include <utility>

namespace weft {

namespace {
// The weight of the latest answer in the average.
constexpr float kLatestAnswer = 0.5f;
// How far each new answer moves it back to the initial value, so that drafts which were rejected
// for long are tried again.
constexpr float kForgotten = 0.1f;
// The weight of the latest answer in the usual length.
constexpr double kLatestLength = 0.25;
}  // namespace

std::unique_ptr<Guesses> Speculator::Begin(std::string_view domain, std::span<const TokenId> text,
                                           int64_t known, int64_t said, const TurnOptions& turn) {
  std::shared_ptr<SharedText> shared;
  if (options_.share_texts) {
    // Includes the end of the known part, so that matches can reach into the new one.
    const int64_t from = std::max<int64_t>(0, known - NgramIndex::kLongestMatch);
    texts_.Add(TextName(domain), text.subspan(static_cast<size_t>(from)));
    shared = texts_.Of(TextName(domain));
  }
  auto guesses = std::make_unique<Guesses>(turn.speculation, turn.prediction, std::move(shared),
                                           options_.looks_in_texts);
  draft_share_ += kForgotten * (Guesses::kUnknownDraftShare - draft_share_);
  guesses->ExpectOfDrafts(draft_share_);
  for (int64_t n = std::ssize(text) - said; n < std::ssize(text); ++n) {
    guesses->Push(text.first(static_cast<size_t>(n + 1)));
  }
  return guesses;
}

void Speculator::End(std::string_view domain, std::span<const TokenId> said,
                     const Guesses& guesses) {
  draft_share_ += kLatestAnswer * (guesses.draft_share() - draft_share_);
  const auto length = static_cast<double>(said.size());
  usual_length_ += (usual_length_ == 0 ? 1 : kLatestLength) * (length - usual_length_);
  if (options_.share_texts) texts_.Add(TextName(domain), said);
}

// An answer that is longer than usual is assumed to be half done.
int64_t Speculator::ExpectMore(int64_t said, int64_t limit) const {
  const int64_t more = std::max(static_cast<int64_t>(usual_length_) - said, said);
  return limit < 0 ? more : std::min(more, limit - said);
}

}  // namespace weft
