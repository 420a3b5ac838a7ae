#include "engine/state/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int kPageTokens = 4;

std::vector<TokenId> Tokens(int64_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Pools and an index over them; sessions are tables that compute nothing.
class PrefixIndexTest : public ::testing::Test {
 protected:
  void Build(std::vector<int64_t> windows, bool slots = false, bool share = false) {
    PrefixIndexOptions options;
    options.page_tokens = kPageTokens;
    options.share_across_domains = share;
    for (const int64_t window : windows) {
      pools_.push_back(std::make_unique<PagePool>("page", 10000));
      options.groups.push_back({pools_.back().get(), window});
    }
    if (slots) options.slots = &slots_;
    windows_ = windows;
    index_ = std::make_unique<PrefixIndex>(options);
  }

  std::vector<PageTable> NewTables(int64_t n_tokens) {
    std::vector<PageTable> tables;
    for (size_t g = 0; g < windows_.size(); ++g) {
      tables.emplace_back(pools_[g].get(), GroupShape{kPageTokens, windows_[g]});
      EXPECT_TRUE(tables.back().Append(n_tokens).ok());
    }
    return tables;
  }

  PrefixInsert Insert(std::string_view domain, const std::vector<TokenId>& tokens,
                      std::vector<PageTable>* tables, bool adopt = true,
                      SlotId checkpoint = kNoSlot) {
    std::vector<PageTable*> pointers;
    for (PageTable& table : *tables) pointers.push_back(&table);
    const auto result = index_->Insert(domain, tokens, static_cast<int64_t>(tokens.size()),
                                       pointers, adopt, checkpoint);
    EXPECT_EQ(Message(index_->CheckIntegrity()), "");
    return result;
  }

  // Inserts the state of a session that computed the tokens and was closed.
  void InsertAndClose(std::string_view domain, const std::vector<TokenId>& tokens,
                      bool checkpoint = false) {
    auto tables = NewTables(static_cast<int64_t>(tokens.size()));
    for (PageTable& table : tables) table.DropBehindWindow();
    PoolRef slot;
    if (checkpoint) slot = PoolRef::Adopt(&slots_, *slots_.Allocate());
    Insert(domain, tokens, &tables, true, slot.id());
  }

  int64_t Length(std::string_view domain, const std::vector<TokenId>& tokens) {
    return index_->MatchLength(domain, tokens, static_cast<int64_t>(tokens.size()));
  }

  EvictionWish Evict(std::vector<int64_t> pages, int64_t slots = 0) {
    const auto freed = index_->EvictLru({std::move(pages), slots});
    EXPECT_EQ(Message(index_->CheckIntegrity()), "");
    return freed;
  }

  std::vector<int64_t> windows_;
  std::vector<std::unique_ptr<PagePool>> pools_;
  SlotPool slots_{"slot", 100};
  std::unique_ptr<PrefixIndex> index_;
};

TEST_F(PrefixIndexTest, FindsTheLongestPrefixToTheToken) {
  Build({0});
  InsertAndClose("a", Tokens(11));
  EXPECT_EQ(pools_[0]->in_use(), 3);
  EXPECT_EQ(Length("a", Tokens(100)), 11);
  for (int64_t n = 0; n <= 11; ++n) EXPECT_EQ(Length("a", Tokens(n)), n);
  EXPECT_EQ(Length("a", Tokens(8, 1)), 0);
  for (size_t at = 0; at < 11; ++at) {
    auto other = Tokens(11);
    other[at] = 99;
    EXPECT_EQ(Length("a", other), static_cast<int64_t>(at));
  }
}

TEST_F(PrefixIndexTest, TakesThePageThatHasMostInCommon) {
  Build({0});
  for (const auto& tail : std::vector<std::vector<TokenId>>{
           {7, 7, 7, 7}, {7, 8}, {7, 8, 9}, {7, 8, 10, 1}, {6}, {7, 8, 10, 3, 5}}) {
    auto tokens = Tokens(4);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    InsertAndClose("a", tokens);
  }
  const auto length = [&](std::vector<TokenId> tail) {
    auto tokens = Tokens(4);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return Length("a", tokens) - 4;
  };
  EXPECT_EQ(length({7, 8, 10, 2}), 3);
  EXPECT_EQ(length({7, 8, 10, 1, 5}), 4);
  EXPECT_EQ(length({7, 8, 10, 3, 5, 5}), 5);
  EXPECT_EQ(length({7, 8, 9, 1}), 3);
  EXPECT_EQ(length({7, 8, 11}), 2);
  EXPECT_EQ(length({7, 7, 7, 8}), 3);
  EXPECT_EQ(length({6, 6}), 1);
  EXPECT_EQ(length({5}), 0);
}

TEST_F(PrefixIndexTest, APartlyFilledPageGrowsInItsPlace) {
  Build({0});
  auto tables = NewTables(2);
  EXPECT_EQ(Insert("a", Tokens(2), &tables).new_nodes, 1);
  EXPECT_EQ(pools_[0]->use_count(0), 2);
  // The session continues in a copy, as with any shared page.
  ASSERT_TRUE(tables[0].MakeWritable()->needed());
  ASSERT_TRUE(tables[0].Append(1).ok());
  EXPECT_EQ(Insert("a", Tokens(3), &tables).new_nodes, 0);
  EXPECT_EQ(pools_[0]->in_use(), 1) << "the index holds the fuller one now";
  EXPECT_EQ(Length("a", Tokens(9)), 3);
  // Known contents are not added again, and the table keeps its own page.
  auto shorter = NewTables(2);
  EXPECT_EQ(Insert("a", Tokens(2), &shorter).new_nodes, 0);
  EXPECT_EQ(pools_[0]->use_count(shorter[0].pages()[0]), 1);
  // Once complete, it may have children.
  InsertAndClose("a", Tokens(6));
  EXPECT_EQ(index_->Stats().nodes, 2);
  EXPECT_EQ(Length("a", Tokens(9)), 6);
  tables.clear();
  shorter.clear();
  EXPECT_EQ(pools_[0]->in_use(), 2);
  EXPECT_THAT(Evict({1}).pages, ElementsAre(1));
  EXPECT_EQ(Length("a", Tokens(9)), 4);
}

TEST_F(PrefixIndexTest, AMatchInTheMiddleOfAPageIsCopiedBeforeItIsWritten) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  PrefixMatch match = index_->Match("a", Tokens(8), 6);
  EXPECT_EQ(match.n_tokens, 6);
  ASSERT_EQ(match.tables[0].n_tokens(), 6);
  const PageId shared = match.tables[0].pages()[1];
  const auto copy = match.tables[0].MakeWritable();
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->from, shared);
  EXPECT_EQ(copy->n_tokens, 2);
  EXPECT_EQ(pools_[0]->use_count(shared), 1) << "the index keeps its own";
}

TEST_F(PrefixIndexTest, WhoGoesOnMayHaveItsTailBack) {
  Build({0, 6});
  auto tables = NewTables(6);
  std::vector<PageTable*> pointers = {&tables[0], &tables[1]};
  const auto give_back = [&](int64_t n, bool at_any_price) {
    index_->GiveBackTail("a", Tokens(n), pointers, at_any_price);
    EXPECT_EQ(Message(index_->CheckIntegrity()), "");
    return !tables[0].SharesTailWithOne() && !tables[1].SharesTailWithOne();
  };
  Insert("a", Tokens(6), &tables);
  EXPECT_FALSE(give_back(5, false)) << "the tokens are others";
  EXPECT_TRUE(give_back(6, false));
  EXPECT_EQ(Length("a", Tokens(6)), 4);
  // Other sessions use later positions of the page: only as a last resort.
  Insert("a", Tokens(6), &tables);
  for (PageTable& table : tables) table.TruncateTo(5);
  EXPECT_FALSE(give_back(5, false));
  EXPECT_TRUE(give_back(5, true));
  // No pages on the way to other prefixes.
  EXPECT_EQ(index_->Stats().evicted_nodes, 0);
  InsertAndClose("a", Tokens(9));
  PrefixMatch match = index_->Match("a", Tokens(9), 6);
  tables = std::move(match.tables);
  pointers = {&tables[0], &tables[1]};
  EXPECT_FALSE(give_back(6, true));
}

TEST_F(PrefixIndexTest, ThousandsOfPagesThatBeginAlikeAreNotAllCompared) {
  Build({0});
  pools_[0]->set_budget(1 << 20);
  constexpr int kPages = 20000;
  for (int i = 0; i < kPages; ++i) {
    const std::vector<TokenId> tokens = {1, 2, 3, 10 + 2 * ((i * 7919) % kPages)};
    auto tables = NewTables(kPageTokens);
    PageTable* const table = &tables[0];
    index_->Insert("a", tokens, kPageTokens, {&table, 1}, false);
  }
  EXPECT_EQ(index_->Stats().nodes, kPages);
  const int64_t before = index_->Stats().compared_tokens;
  EXPECT_EQ(Length("a", {1, 2, 3, 10 + kPages + 1}), 3);
  EXPECT_EQ(Length("a", {1, 2, 3, 10 + kPages}), 4);
  EXPECT_EQ(Length("a", {1, 2, 4}), 2);
  EXPECT_LE(index_->Stats().compared_tokens - before, 3 * 3 * 2 * 16 * kPageTokens);
}

TEST_F(PrefixIndexTest, LeavesOneTokenToComputeWhenAsked) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  EXPECT_EQ(index_->Match("a", Tokens(8), 7).n_tokens, 7);
  EXPECT_EQ(index_->Match("a", Tokens(9), 8).n_tokens, 8);
  EXPECT_EQ(index_->Match("a", Tokens(9), 0).n_tokens, 0);
  EXPECT_EQ(index_->Match("a", Tokens(9), -1).n_tokens, 0);
}

TEST_F(PrefixIndexTest, AMatchSharesThePages) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  {
    const PrefixMatch match = index_->Match("a", Tokens(20), 20);
    ASSERT_EQ(match.tables.size(), 1u);
    EXPECT_EQ(match.tables[0].n_tokens(), 8);
    EXPECT_EQ(pools_[0]->in_use(), 2);
    EXPECT_EQ(pools_[0]->use_count(0), 2);
  }
  EXPECT_EQ(pools_[0]->use_count(0), 1);
}

TEST_F(PrefixIndexTest, AMatchOutlivesTheNodes) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  const PrefixMatch match = index_->Match("a", Tokens(8), 8);
  EXPECT_EQ(index_->Clear(), 2);
  EXPECT_EQ(pools_[0]->in_use(), 2);
  EXPECT_EQ(pools_[0]->use_count(match.tables[0].pages()[1]), 1);
}

TEST_F(PrefixIndexTest, DomainsDoNotSeeEachOther) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  EXPECT_EQ(Length("b", Tokens(8)), 0);
  EXPECT_EQ(Length("", Tokens(8)), 0);
  InsertAndClose("b", Tokens(8));
  EXPECT_EQ(pools_[0]->in_use(), 4);
  EXPECT_EQ(index_->Stats().domains, 2);
}

TEST_F(PrefixIndexTest, DomainsShareWhenTheOperatorSaysSo) {
  Build({0}, false, true);
  InsertAndClose("a", Tokens(8));
  EXPECT_EQ(Length("b", Tokens(8)), 8);
}

TEST_F(PrefixIndexTest, DuplicatesAreAdoptedAndGivenBack) {
  Build({0});
  auto first = NewTables(8);
  auto second = NewTables(10);
  Insert("a", Tokens(8), &first);
  auto result = Insert("a", Tokens(10), &second, false);
  EXPECT_EQ(result.adopted_pages, 0);
  EXPECT_EQ(pools_[0]->in_use(), 5);
  result = Insert("a", Tokens(10), &second, true);
  EXPECT_EQ(result.new_nodes, 0);
  EXPECT_EQ(result.adopted_pages, 2);
  EXPECT_EQ(pools_[0]->in_use(), 3);
  EXPECT_EQ(second[0].pages()[0], first[0].pages()[0]);
  EXPECT_EQ(pools_[0]->use_count(0), 3);
}

TEST_F(PrefixIndexTest, EvictsTheLeastRecentlyUsedLeaves) {
  Build({0});
  InsertAndClose("a", Tokens(8, 100));
  InsertAndClose("a", Tokens(8, 200));
  InsertAndClose("a", Tokens(8, 300));
  index_->Match("a", Tokens(8, 100), 8);
  EXPECT_THAT(Evict({1}).pages, ElementsAre(1));
  EXPECT_EQ(Length("a", Tokens(8, 200)), 4);
  EXPECT_THAT(Evict({2}).pages, ElementsAre(2));
  EXPECT_EQ(Length("a", Tokens(8, 200)), 0);
  EXPECT_EQ(Length("a", Tokens(8, 300)), 4);
  EXPECT_EQ(Length("a", Tokens(8, 100)), 8);
  EXPECT_THAT(Evict({1000}).pages, ElementsAre(3));
  EXPECT_EQ(pools_[0]->in_use(), 0);
  EXPECT_EQ(index_->Stats().nodes, 0);
  EXPECT_EQ(index_->Stats().domains, 0);
}

TEST_F(PrefixIndexTest, DoesNotEvictWhatWouldFreeNothing) {
  Build({0});
  InsertAndClose("a", Tokens(8));
  const PrefixMatch match = index_->Match("a", Tokens(8), 8);
  InsertAndClose("a", Tokens(4, 50));
  EXPECT_THAT(Evict({10}).pages, ElementsAre(1));
  EXPECT_EQ(Length("a", Tokens(8)), 8);
}

TEST_F(PrefixIndexTest, WindowedGroupsAllowResumingOnlyWhereTheWindowIsThere) {
  // A token sees 5 positions back: two pages, or one.
  Build({0, 6});
  InsertAndClose("a", Tokens(16));  // holds windowed pages 2 and 3 only
  EXPECT_EQ(Length("a", Tokens(16)), 16);
  // As far back into page 2 as both hold all that its positions see.
  EXPECT_EQ(Length("a", Tokens(15)), 15);
  EXPECT_EQ(Length("a", Tokens(13)), 13);
  EXPECT_EQ(Length("a", Tokens(12)), 0);
  EXPECT_EQ(pools_[0]->in_use(), 4);
  EXPECT_EQ(pools_[1]->in_use(), 2);
  const PrefixMatch match = index_->Match("a", Tokens(16), 16);
  EXPECT_EQ(match.tables[1].pages_held(), 2);
  EXPECT_TRUE(match.tables[1].Covers(16));
  // Another session brings the missing pages.
  auto tables = NewTables(16);
  Insert("a", Tokens(16), &tables);
  EXPECT_EQ(Length("a", Tokens(12)), 12);
  for (int64_t n = 0; n <= 16; ++n) EXPECT_EQ(Length("a", Tokens(n)), n);
  const PrefixMatch middle = index_->Match("a", Tokens(16), 14);
  EXPECT_EQ(middle.n_tokens, 14);
  EXPECT_EQ(middle.tables[1].first_present(), 2);
  EXPECT_TRUE(middle.tables[1].Covers(14));
}

TEST_F(PrefixIndexTest, WindowedPagesOfOldResumePointsGoFirst) {
  Build({0, 6});
  auto tables = NewTables(8);
  Insert("a", Tokens(8), &tables);
  ASSERT_TRUE(tables[0].Append(12).ok());
  ASSERT_TRUE(tables[1].Append(12).ok());
  Insert("a", Tokens(20), &tables);
  tables.clear();
  EXPECT_EQ(pools_[1]->in_use(), 5);
  EXPECT_THAT(Evict({0, 3}).pages, ElementsAre(0, 3));
  EXPECT_EQ(Length("a", Tokens(20)), 20);
  EXPECT_EQ(Length("a", Tokens(19)), 19);
  EXPECT_EQ(Length("a", Tokens(16)), 0);
  EXPECT_EQ(index_->Stats().nodes, 5);
  // Without the last window nothing can resume there: the dead leaves go too.
  EXPECT_GE(Evict({0, 1}).pages[1], 1);
  EXPECT_EQ(index_->Stats().nodes, 0);
  EXPECT_EQ(pools_[0]->in_use() + pools_[1]->in_use(), 0);
}

TEST_F(PrefixIndexTest, RecurrentModelsResumeAtCheckpointsOnly) {
  Build({0}, true);
  InsertAndClose("a", Tokens(8), true);
  InsertAndClose("a", Tokens(16), true);
  EXPECT_EQ(slots_.in_use(), 2);
  EXPECT_EQ(Length("a", Tokens(20)), 16);
  EXPECT_EQ(Length("a", Tokens(15)), 8);
  EXPECT_EQ(Length("a", Tokens(7)), 0);
  const auto places = [&](int64_t max_tokens) {
    std::vector<std::pair<int64_t, SlotId>> found;
    for (const auto& checkpoint : index_->Checkpoints("a", Tokens(20), max_tokens)) {
      found.emplace_back(checkpoint.n_tokens, checkpoint.slot);
    }
    return found;
  };
  EXPECT_THAT(places(20), ElementsAre(Pair(8, 0), Pair(16, 1)));
  EXPECT_THAT(places(15), ElementsAre(Pair(8, 0)));
  {
    const PrefixMatch match = index_->Match("a", Tokens(15), 15);
    ASSERT_TRUE(match.checkpoint);
    EXPECT_EQ(match.checkpoint.id(), 0);
    EXPECT_EQ(slots_.use_count(0), 2);
  }
  // The checkpoint at 8 was used last, so the one at 16 goes, and with it the pages it made useful.
  EXPECT_EQ(Evict({0}, 1).slots, 1);
  EXPECT_EQ(Length("a", Tokens(20)), 8);
  EXPECT_EQ(pools_[0]->in_use(), 2);
}

TEST_F(PrefixIndexTest, ACheckpointInTheMiddleOfAPageHasThePagesToThere) {
  Build({0, 6}, true);
  InsertAndClose("a", Tokens(6), true);
  InsertAndClose("a", Tokens(7));  // without a checkpoint nothing could start there
  EXPECT_EQ(index_->Stats().nodes, 2);
  InsertAndClose("a", Tokens(7), true);
  InsertAndClose("a", Tokens(16), true);
  EXPECT_EQ(Length("a", Tokens(5)), 0);
  EXPECT_EQ(Length("a", Tokens(6)), 6);
  EXPECT_EQ(Length("a", Tokens(15)), 7);
  EXPECT_EQ(Length("a", Tokens(20)), 16);
  const PrefixMatch match = index_->Match("a", Tokens(15), 15);
  EXPECT_EQ(match.tables[0].n_tokens(), 7);
  EXPECT_EQ(match.tables[1].n_tokens(), 7);
  EXPECT_EQ(match.checkpoint.id(), 1);
  index_->ForgetCheckpoint("a", Tokens(7));
  EXPECT_EQ(Length("a", Tokens(15)), 6);
  EXPECT_EQ(Message(index_->CheckIntegrity()), "");
}

TEST_F(PrefixIndexTest, ASecondCheckpointAtTheSamePlaceIsNotKept) {
  Build({0}, true);
  InsertAndClose("a", Tokens(8), true);
  auto tables = NewTables(8);
  const PoolRef slot = PoolRef::Adopt(&slots_, *slots_.Allocate());
  EXPECT_FALSE(Insert("a", Tokens(8), &tables, true, slot.id()).checkpoint_kept);
  EXPECT_EQ(slots_.use_count(slot.id()), 1);
}

TEST_F(PrefixIndexTest, WhatIsKnownMayReachFurtherThanWhereASessionCanStart) {
  Build({0}, true);
  InsertAndClose("a", Tokens(8), true);
  InsertAndClose("a", Tokens(16), true);
  EXPECT_EQ(index_->KnownLength("a", Tokens(15), 15), 15);
  EXPECT_EQ(Length("a", Tokens(15)), 8);
  EXPECT_EQ(index_->KnownLength("a", Tokens(15), 5), 5);
  std::vector<TokenId> leaving = Tokens(16);
  leaving[9] = 99;
  EXPECT_EQ(index_->KnownLength("a", leaving, 15), 9);
  EXPECT_EQ(index_->KnownLength("b", Tokens(15), 15), 0);
}

TEST_F(PrefixIndexTest, ListsCheckpointsWhereverTheyLieInAPage) {
  Build({0}, true);
  for (const int64_t n : {8, 14, 5, 13, 16, 3}) InsertAndClose("a", Tokens(n), true);
  std::vector<int64_t> found;
  for (const auto& checkpoint : index_->Checkpoints("a", Tokens(20), 15)) {
    EXPECT_NE(checkpoint.slot, kNoSlot);
    found.push_back(checkpoint.n_tokens);
  }
  EXPECT_THAT(found, ElementsAre(3, 5, 8, 13, 14));
}

TEST_F(PrefixIndexTest, ShowsThePagesThatItHasOfAWindow) {
  Build({0, 4});
  auto tables = NewTables(8);
  Insert("a", Tokens(8), &tables);
  InsertAndClose("a", Tokens(16));
  EXPECT_THAT(index_->PagesAtEnd("a", Tokens(4)),
              ElementsAre(tables[0].pages()[0], tables[1].pages()[0]));
  EXPECT_EQ(index_->PagesAtEnd("a", Tokens(12))[1], kNoPage);
  EXPECT_NE(index_->PagesAtEnd("a", Tokens(12))[0], kNoPage);
  EXPECT_TRUE(index_->PagesAtEnd("a", Tokens(20)).empty());
  EXPECT_TRUE(index_->PagesAtEnd("b", Tokens(4)).empty());
}

TEST_F(PrefixIndexTest, AForgottenCheckpointTakesWhatItMadeUsefulAlong) {
  Build({0}, true);
  InsertAndClose("a", Tokens(8), true);
  InsertAndClose("a", Tokens(16), true);
  index_->ForgetCheckpoint("a", Tokens(12));  // there is none
  index_->ForgetCheckpoint("a", Tokens(15));
  index_->ForgetCheckpoint("b", Tokens(16));
  EXPECT_EQ(slots_.in_use(), 2);
  index_->ForgetCheckpoint("a", Tokens(8));
  EXPECT_EQ(Length("a", Tokens(15)), 0);
  EXPECT_EQ(Length("a", Tokens(16)), 16) << "the way to it stays";
  EXPECT_EQ(pools_[0]->in_use(), 4);
  index_->ForgetCheckpoint("a", Tokens(16));
  EXPECT_EQ(slots_.in_use() + pools_[0]->in_use(), 0);
  EXPECT_EQ(index_->Stats().evicted_checkpoints, 0);
  EXPECT_EQ(Message(index_->CheckIntegrity()), "");
}

TEST_F(PrefixIndexTest, BeyondTheLimitTheCheckpointUsedLongestAgoGoes) {
  Build({0}, true);
  for (const int64_t n : {4, 8, 12, 16}) InsertAndClose("a", Tokens(n), true);
  EXPECT_EQ(index_->Match("a", Tokens(4), 4).n_tokens, 4);  // a use
  PoolRef held;
  held = index_->Match("a", Tokens(16), 16).checkpoint;
  EXPECT_EQ(index_->Stats().lone_checkpoints, 3);
  index_->LimitCheckpoints(2);
  EXPECT_EQ(index_->Stats().checkpoints, 2);
  EXPECT_EQ(index_->Stats().evicted_checkpoints, 2);
  EXPECT_EQ(Length("a", Tokens(15)), 4);
  EXPECT_EQ(Length("a", Tokens(16)), 16);
  index_->LimitCheckpoints(0);
  EXPECT_EQ(index_->Stats().nodes, 0);
  EXPECT_EQ(slots_.in_use(), 1) << "a session still holds one";
  EXPECT_EQ(Message(index_->CheckIntegrity()), "");
}

TEST_F(PrefixIndexTest, LongPrefixesNeedNoRecursion) {
  Build({0});
  pools_[0]->set_budget(1 << 20);
  InsertAndClose("a", Tokens(kPageTokens * 50000));
  EXPECT_EQ(Length("a", Tokens(kPageTokens * 50000)), kPageTokens * 50000);
  EXPECT_EQ(index_->Clear(), 50000);
}

}  // namespace
}  // namespace weft
