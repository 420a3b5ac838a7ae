// Compares Match in random trees with plain lists of everything inserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "engine/state/page_pool.h"
#include "engine/state/page_table.h"
#include "engine/state/prefix_index.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;

struct Model {
  std::vector<int64_t> windows;
  bool slots = false;
};

// Computes the longest resume point from a plain list of all insertions: by tokens, to the end of a
// page or of its contents.
struct Seen {
  std::vector<bool> present;
  bool checkpoint = false;
};
using SeenPrefixes = std::map<std::vector<TokenId>, Seen>;

bool ResumableByHand(const SeenPrefixes& seen, const Model& model,
                     const std::vector<TokenId>& tokens, int64_t n) {
  const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + n);
  const int64_t entry_start = (n - 1) / kPageTokens * kPageTokens;
  const auto usable = [&](const std::vector<TokenId>& known, const Seen& last) {
    const int64_t known_size = static_cast<int64_t>(known.size());
    if (known_size > entry_start + kPageTokens || known_size < n) return false;
    if (!std::equal(prefix.begin(), prefix.end(), known.begin())) return false;
    if (model.slots && (known_size != n || !last.checkpoint)) return false;
    for (size_t g = 0; g < model.windows.size(); ++g) {
      if (n % kPageTokens != 0 && !last.present[g]) return false;
      const int64_t window = model.windows[g] > 0 ? model.windows[g] : 1000000;
      for (int64_t p = std::max<int64_t>(0, n - window + 1); p < n; ++p) {
        const int64_t page_end = (p / kPageTokens + 1) * kPageTokens;
        const bool present = p >= entry_start
                                 ? last.present[g]
                                 : seen.at({tokens.begin(), tokens.begin() + page_end}).present[g];
        if (!present) return false;
      }
    }
    return true;
  };
  return std::ranges::any_of(seen,
                             [&](const auto& known) { return usable(known.first, known.second); });
}

int64_t LongestByHand(const SeenPrefixes& seen, const Model& model,
                      const std::vector<TokenId>& tokens) {
  int64_t n = static_cast<int64_t>(tokens.size());
  while (n > 0 && !ResumableByHand(seen, model, tokens, n)) --n;
  return n;
}

TEST(PrefixIndexPropertyTest, MatchIsTheLongestResumePoint) {
  const Model models[] = {{{0}, false}, {{0, 7}, false}, {{9}, false}, {{0, 5, 2}, true}};
  for (const Model& model : models) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::mt19937_64 random(seed);
      const auto below = [&](int64_t n) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
      };
      PrefixIndexOptions options;
      options.page_tokens = kPageTokens;
      std::vector<std::unique_ptr<PagePool>> pools;
      for (const int64_t window : model.windows) {
        pools.push_back(std::make_unique<PagePool>("page", 100000));
        options.groups.push_back({pools.back().get(), window});
      }
      SlotPool slots("slot", 1000);
      if (model.slots) options.slots = &slots;
      PrefixIndex index(options);
      SeenPrefixes seen;
      for (int round = 0; round < 60; ++round) {
        std::vector<TokenId> tokens(static_cast<size_t>(below(40)));
        for (TokenId& token : tokens) token = below(10) == 0 ? 1 : 0;
        const int64_t size = static_cast<int64_t>(tokens.size());
        ASSERT_EQ(index.MatchLength("d", tokens, size), LongestByHand(seen, model, tokens));

        std::vector<PageTable> tables;
        std::vector<PageTable*> pointers;
        for (size_t g = 0; g < pools.size(); ++g) {
          tables.emplace_back(pools[g].get(), GroupShape{kPageTokens, model.windows[g]});
          ASSERT_TRUE(tables.back().Append(size).ok());
          if (model.windows[g] > 0) tables.back().DropBefore(below(size + 1));
        }
        pointers.reserve(tables.size());
        for (PageTable& table : tables) pointers.push_back(&table);
        const bool checkpoint = model.slots && size > 0 && below(4) > 0;
        PoolRef slot;
        if (checkpoint) slot = PoolRef::Adopt(&slots, *slots.Allocate());
        index.Insert("d", tokens, size, pointers, below(2) == 0, slot.id());
        for (int64_t from = 0; from < size; from += kPageTokens) {
          const int64_t n = std::min(from + kPageTokens, size);
          Seen& node = seen[{tokens.begin(), tokens.begin() + n}];
          node.present.resize(pools.size());
          for (size_t g = 0; g < pools.size(); ++g) {
            const int64_t entry = from / kPageTokens;
            if (tables[g].first_present() <= entry) node.present[g] = true;
          }
          if (checkpoint && n == size) node.checkpoint = true;
        }
      }
    }
  }
}

// With evictions: of every inserted sequence the index still has a part, which it returns when
// asked for that sequence; and for any other prompt it finds the longest common prefix with any of
// those parts.
TEST(PrefixIndexPropertyTest, WhatIsStillHeldIsFoundToTheToken) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    PagePool pool("page", 100000);
    PrefixIndex index({.page_tokens = kPageTokens, .groups = {{&pool, 0}}});
    std::vector<std::vector<TokenId>> inserted;
    const auto random_prompt = [&] {
      std::vector<TokenId> prompt;
      if (!inserted.empty() && below(3) > 0) {  // one that diverges from another
        prompt = inserted[static_cast<size_t>(below(std::ssize(inserted)))];
        prompt.resize(static_cast<size_t>(below(std::ssize(prompt) + 1)));
      }
      for (int64_t n = below(14); n > 0; --n) prompt.push_back(static_cast<TokenId>(below(4)));
      return prompt;
    };
    for (int round = 0; round < 120; ++round) {
      const std::vector<TokenId> prompt = random_prompt();
      const int64_t size = std::ssize(prompt);
      const int64_t limit = below(size + 1);
      int64_t longest = 0;
      for (const std::vector<TokenId>& other : inserted) {
        int64_t common = 0;
        while (common < std::min<int64_t>(size, std::ssize(other)) &&
               prompt[static_cast<size_t>(common)] == other[static_cast<size_t>(common)]) {
          ++common;
        }
        longest = std::max(longest, std::min(common, index.MatchLength("d", other, 10000)));
      }
      ASSERT_EQ(index.MatchLength("d", prompt, size), longest);
      PrefixMatch match = index.Match("d", prompt, limit);
      ASSERT_EQ(match.n_tokens, std::min(longest, limit));
      ASSERT_TRUE(match.tables[0].MakeWritable().ok());
      ASSERT_TRUE(match.tables[0].Append(size - match.n_tokens).ok());
      PageTable* const table = &match.tables[0];
      index.Insert("d", prompt, size, {&table, 1}, below(2) == 0);
      ASSERT_EQ(index.MatchLength("d", prompt, size), size);
      inserted.push_back(prompt);
      match.tables.clear();
      if (below(3) == 0) index.EvictLru({{below(12)}});
      ASSERT_EQ(Message(index.CheckIntegrity()), "");
      std::vector<int32_t> counts;
      index.AddPageCounts(0, &counts);
      ASSERT_EQ(Message(pool.CheckIntegrity(counts)), "");
    }
  }
}

}  // namespace
}  // namespace weft
