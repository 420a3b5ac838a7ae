#include "model/tokenizer/merge_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace weft {
namespace {

// Random merges over a small alphabet; symbols are numbers.
class Rules {
 public:
  explicit Rules(uint32_t seed) : random_(seed) {
    int32_t n_symbols = 4;
    for (uint32_t rank = 0; rank < 40; ++rank) {
      const auto left = static_cast<int32_t>(random_() % n_symbols);
      const auto right = static_cast<int32_t>(random_() % n_symbols);
      // Some ranks are shared, so that ties occur.
      if (pairs_.emplace(std::pair(left, right), MergeCandidate{rank / 3, n_symbols}).second) {
        ++n_symbols;
      }
    }
  }

  MergeCandidate operator()(const MergeSymbol& left, const MergeSymbol& right) const {
    const auto it = pairs_.find({left.id, right.id});
    return it == pairs_.end() ? MergeCandidate() : it->second;
  }

  std::vector<MergeSymbol> RandomWord(size_t n) {
    std::vector<MergeSymbol> word;
    for (uint32_t i = 0; i < n; ++i) word.push_back({static_cast<int32_t>(random_() % 4), i, 1});
    return word;
  }

 private:
  std::mt19937 random_;
  std::map<std::pair<int32_t, int32_t>, MergeCandidate> pairs_;
};

// The definition, implemented literally.
std::vector<MergeSymbol> MergeByDefinition(std::vector<MergeSymbol> word, const Rules& rules) {
  for (;;) {
    MergeCandidate best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const MergeCandidate candidate = rules(word[i], word[i + 1]);
      if (candidate.priority < best.priority) {
        best = candidate;
        at = i;
      }
    }
    if (best.priority == MergeCandidate::kNever) return word;
    word[at] = {best.id, word[at].begin, word[at].bytes + word[at + 1].bytes};
    word.erase(word.begin() + at + 1);
  }
}

std::vector<std::array<uint32_t, 3>> Plain(const std::vector<MergeSymbol>& word) {
  std::vector<std::array<uint32_t, 3>> out;
  for (const MergeSymbol& s : word) out.push_back({static_cast<uint32_t>(s.id), s.begin, s.bytes});
  return out;
}

TEST(MergeLoop, ShortAndLongFollowTheDefinition) {
  MergeScratch scratch;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Rules rules(seed);
    for (size_t n = 1; n < 90; n += 1 + n / 8) {
      const std::vector<MergeSymbol> word = rules.RandomWord(n);
      const auto expected = Plain(MergeByDefinition(word, rules));
      scratch.symbols = word;
      MergeSymbols(&scratch, rules);
      EXPECT_EQ(Plain(scratch.symbols), expected);
      scratch.symbols = word;
      merge_internal::MergeLong(&scratch, rules);
      EXPECT_EQ(Plain(scratch.symbols), expected);
    }
  }
}

TEST(MergeLoop, EmptyWord) {
  MergeScratch scratch;
  MergeSymbols(&scratch, Rules(1));
  EXPECT_TRUE(scratch.symbols.empty());
}

TEST(MergeLoop, WorkGrowsLinearly) {
  // a a -> b, b b -> c, ...: one letter repeated, the worst case for naive merging.
  const auto doubling = [](const MergeSymbol& left, const MergeSymbol& right) {
    if (left.id != right.id || left.id >= 8) return MergeCandidate();
    return MergeCandidate{static_cast<uint32_t>(left.id), left.id + 1};
  };
  const auto steps = [&](uint32_t n) {
    MergeScratch scratch;
    for (uint32_t i = 0; i < n; ++i) scratch.symbols.push_back({0, i, 1});
    MergeSymbols(&scratch, doubling);
    return scratch.steps;
  };
  const uint64_t once = steps(50'000);
  EXPECT_LT(once, 50'000u * 8);
  EXPECT_LT(steps(100'000), once * 5 / 2);
}

}  // namespace
}  // namespace weft
