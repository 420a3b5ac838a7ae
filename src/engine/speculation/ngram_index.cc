#include "engine/speculation/ngram_index.h"

#include <algorithm>
#include <bit>

namespace weft {
namespace {

constexpr int kMaxTried = 16;
constexpr int64_t kMinRoom = 256;

uint64_t HashOf(std::span<const TokenId> tokens) {
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const TokenId token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xD6E8FEB86659FD93;
    hash ^= hash >> 32;
  }
  return hash;
}

// The n tokens before a position.
std::span<const TokenId> Before(std::span<const TokenId> text, int64_t at, int64_t n) {
  return text.subspan(static_cast<size_t>(at - n), static_cast<size_t>(n));
}

// How many tokens before `at` equal the last ones of `context`. Input embeddings never match.
int64_t CommonEnd(std::span<const TokenId> text, int64_t at, std::span<const TokenId> context) {
  const int64_t most = std::min<int64_t>({at, std::ssize(context), NgramIndex::kLongestMatch});
  int64_t n = 0;
  while (n < most) {
    const TokenId token = text[static_cast<size_t>(at - 1 - n)];
    if (token < 0 || token != context[context.size() - 1 - static_cast<size_t>(n)]) break;
    ++n;
  }
  return n;
}

}  // namespace

void NgramIndex::Add(std::span<const TokenId> text, int64_t at, Grams* grams) {
  int32_t former = -1;
  if (at >= grams->n) {
    const size_t place = HashOf(Before(text, at, grams->n)) & (grams->latest.size() - 1);
    former = grams->latest[place];
    grams->latest[place] = static_cast<int32_t>(at);
  }
  grams->former.push_back(former);
}

// Rebuilds tables that are too small for the text.
void NgramIndex::MakeRoom(std::span<const TokenId> text) {
  if (text.size() <= grams_[0].latest.size()) return;
  const size_t room =
      std::bit_ceil(std::max(text.size() + text.size() / 2, static_cast<size_t>(kMinRoom)));
  for (Grams& grams : grams_) {
    grams.latest.assign(room, -1);
    grams.former.clear();
    for (int64_t at = 0; at < size_; ++at) Add(text, at, &grams);
  }
}

void NgramIndex::Extend(std::span<const TokenId> text, int64_t most) {
  // A position counts once a token follows it.
  const int64_t end = std::min<int64_t>(std::ssize(text), size_ + most);
  if (end <= size_) return;
  MakeRoom(text);
  for (Grams& grams : grams_) {
    for (int64_t at = size_; at < end; ++at) Add(text, at, &grams);
  }
  size_ = end;
}

NgramIndex::Match NgramIndex::Find(std::span<const TokenId> text,
                                   std::span<const TokenId> context) const {
  for (const Grams& grams : grams_) {
    const Match match = FindAmong(grams, text, context);
    if (match.next >= 0) return match;
  }
  return {};
}

NgramIndex::Match NgramIndex::FindAmong(const Grams& grams, std::span<const TokenId> text,
                                        std::span<const TokenId> context) {
  if (std::ssize(context) < grams.n || grams.latest.empty()) return {};
  const uint64_t hash = HashOf(context.last(static_cast<size_t>(grams.n)));
  std::array<Match, kMaxTried> found;
  size_t n = 0;
  int64_t longest = 0;
  int64_t at = grams.latest[hash & (grams.latest.size() - 1)];
  for (int tries = 0; tries < kMaxTried && at >= 0; ++tries) {
    const int64_t length = CommonEnd(text, at, context);
    if (length >= std::max(grams.n, longest) && text[static_cast<size_t>(at)] >= 0) {
      if (length > longest) n = 0;
      longest = length;
      found[n++] = {at, length};
    }
    at = grams.former[static_cast<size_t>(at)];
  }
  Match best;
  int64_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto goes_on_alike = [&](const Match& other) {
      return text[static_cast<size_t>(other.next)] == text[static_cast<size_t>(found[i].next)];
    };
    const int64_t times =
        std::count_if(found.begin(), found.begin() + static_cast<ptrdiff_t>(n), goes_on_alike);
    if (times <= most) continue;
    most = times;
    best = found[i];
  }
  return best;
}

void NgramIndex::Clear() { *this = NgramIndex(); }

int64_t NgramIndex::memory_bytes() const {
  size_t entries = 0;
  for (const Grams& grams : grams_) entries += grams.latest.capacity() + grams.former.capacity();
  return static_cast<int64_t>(entries * sizeof(int32_t));
}

}  // namespace weft
