// What evictions cost while sessions hold pages of the index, and that they still find everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/state/prefix_index.h"

namespace weft {
namespace {

constexpr int kPageTokens = 4;

// An index over a model's pools, and sessions that hold tables.
class EvictionTest : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  EvictionTest() {
    PrefixIndexOptions options;
    options.page_tokens = kPageTokens;
    for (const int64_t window : GetParam()) {
      pools_.push_back(std::make_unique<PagePool>("page", 100'000));
      options.groups.push_back({pools_.back().get(), window});
    }
    index_ = std::make_unique<PrefixIndex>(options);
  }

  // A session that has computed the tokens, or found them.
  std::vector<PageTable> Compute(const std::vector<TokenId>& tokens) {
    const auto n = static_cast<int64_t>(tokens.size());
    PrefixMatch match = index_->Match("d", tokens, n);
    std::vector<PageTable> tables = std::move(match.tables);
    if (match.n_tokens == 0) tables.clear();
    for (size_t g = 0; g < pools_.size(); ++g) {
      if (tables.size() <= g) {
        tables.emplace_back(pools_[g].get(), GroupShape{kPageTokens, GetParam()[g]});
      }
      EXPECT_TRUE(tables[g].MakeWritable().ok());
      EXPECT_TRUE(tables[g].Append(n - match.n_tokens).ok());
    }
    std::vector<PageTable*> pointers;
    for (PageTable& table : tables) pointers.push_back(&table);
    index_->Insert("d", tokens, n, pointers, /*adopt=*/true);
    for (PageTable& table : tables) table.DropBehindWindow();
    return tables;
  }
  void Evict(int64_t pages) {
    index_->EvictLru({std::vector<int64_t>(pools_.size(), pages)});
    const Status sound = index_->CheckIntegrity();
    EXPECT_TRUE(sound.ok()) << sound;
  }
  int64_t Visits() const { return index_->Stats().eviction_visits; }

  std::vector<std::unique_ptr<PagePool>> pools_;
  std::unique_ptr<PrefixIndex> index_;
};

INSTANTIATE_TEST_SUITE_P(Models, EvictionTest,
                         ::testing::Values(std::vector<int64_t>{0}, std::vector<int64_t>{7},
                                           std::vector<int64_t>{0, 7}),
                         [](const auto& info) { return "Model" + std::to_string(info.index); });

TEST_P(EvictionTest, WhatOthersHoldIsLookedAtOnce) {
  constexpr int kSessions = 300;
  std::vector<std::vector<PageTable>> sessions;
  for (TokenId i = 0; i < kSessions; ++i) sessions.push_back(Compute({i, i, i, i, i, 7}));
  Evict(1);
  const int64_t once = Visits();
  EXPECT_LE(once, 4 * kSessions);
  for (int i = 0; i < 50; ++i) Evict(1);
  EXPECT_EQ(Visits(), once);
  // A session that lets go is found at once.
  for (const size_t i : {size_t{100}, size_t{5}, size_t{299}}) {
    const int32_t before = pools_[0]->in_use();
    sessions[i].clear();
    Evict(1);
    EXPECT_LT(pools_[0]->in_use(), before);
  }
  EXPECT_LE(Visits(), once + 30);
}

TEST_P(EvictionTest, AllThatNobodyElseHoldsCanBeEvicted) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::vector<std::vector<PageTable>> sessions;
    for (int round = 0; round < 150; ++round) {
      const size_t what = below(4);
      if (what == 0 && !sessions.empty()) {
        sessions.erase(sessions.begin() + static_cast<ptrdiff_t>(below(sessions.size())));
      } else if (what == 1) {
        Evict(static_cast<int64_t>(below(4)));
      } else {
        std::vector<TokenId> tokens(1 + below(20));
        for (TokenId& token : tokens) token = static_cast<TokenId>(below(2));
        sessions.push_back(Compute(tokens));
      }
    }
    Evict(1'000'000);
    for (size_t g = 0; g < pools_.size(); ++g) {
      std::set<PageId> held;
      for (const auto& tables : sessions) {
        for (const PageId page : tables[g].pages()) held.insert(page);
      }
      held.erase(kNoPage);
      EXPECT_EQ(pools_[g]->in_use(), static_cast<int32_t>(held.size()));
    }
    sessions.clear();
    Evict(1'000'000);
    for (const auto& pool : pools_) EXPECT_EQ(pool->in_use(), 0);
    EXPECT_EQ(index_->Stats().nodes, 0);
  }
}

}  // namespace
}  // namespace weft
