#include "engine/speculation/speculator.h"

#include <algorithm>
#include <utility>

namespace weft {

std::unique_ptr<Guesses> Speculator::Begin(std::string_view domain, std::span<const TokenId> text,
                                           int64_t known, int64_t said, const TurnOptions& turn) {
  std::shared_ptr<SharedText> shared;
  if (options_.share_texts) {
    // With what leads from the known part to the new one.
    const int64_t from = std::max<int64_t>(0, known - NgramIndex::kLongestMatch);
    texts_.Add(TextName(domain), text.subspan(static_cast<size_t>(from)));
    shared = texts_.Of(TextName(domain));
  }
  auto guesses = std::make_unique<Guesses>(turn.speculation, turn.prediction, std::move(shared),
                                           options_.looks_in_texts);
  for (int64_t n = std::ssize(text) - said; n < std::ssize(text); ++n) {
    guesses->Push(text.first(static_cast<size_t>(n + 1)));
  }
  return guesses;
}

void Speculator::End(std::string_view domain, std::span<const TokenId> said) {
  if (options_.share_texts) texts_.Add(TextName(domain), said);
}

}  // namespace weft
