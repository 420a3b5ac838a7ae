#include "engine/state/block_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace weft {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kPage = 4;

std::vector<TokenId> Tokens(int64_t n, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(first + static_cast<TokenId>(i));
  return tokens;
}

// Adds prompts block by block, like the state keeper.
class Store {
 public:
  explicit Store(int64_t budget = 1'000'000, bool slots = false, std::vector<int64_t> windows = {0})
      : catalog_({.page_tokens = kPage,
                  .windows = std::move(windows),
                  .slots = slots,
                  .budget_bytes = budget,
                  .folder = "mine"}) {}

  // Adds the tokens' pages; those before `windowed_from` lack a page of group 1. True if all found
  // room.
  bool AddPages(std::string_view domain, std::span<const TokenId> tokens, int64_t now = 0,
                int64_t windowed_from = 0) {
    parent_ = BlockRoot(domain);
    for (size_t at = 0; at < tokens.size(); at += kPage) {
      BlockInfo info;
      info.parent = parent_;
      info.first_token = static_cast<int64_t>(at);
      const auto page = tokens.subspan(at, std::min<size_t>(kPage, tokens.size() - at));
      info.tokens.assign(page.begin(), page.end());
      info.key = PageBlockKey(parent_, page);
      info.groups = static_cast<int64_t>(at) >= windowed_from ? 3 : 1;
      info.bytes = 100;
      info.used_s = now;
      if (page.size() == kPage) parent_ = info.key;
      if (!AddOne(info)) return false;
    }
    return true;
  }
  // Adds the recurrent state after the tokens, whose pages are already there.
  bool AddSlot(std::string_view domain, std::span<const TokenId> tokens, int64_t now = 0) {
    Fingerprint parent = BlockRoot(domain);
    size_t at = 0;
    for (; at + kPage <= tokens.size(); at += kPage) {
      parent = PageBlockKey(parent, tokens.subspan(at, kPage));
    }
    BlockInfo info;
    info.kind = BlockInfo::Kind::kSlot;
    info.parent = parent;
    info.first_token = static_cast<int64_t>(at);
    info.tokens.assign(tokens.begin() + static_cast<ptrdiff_t>(at), tokens.end());
    info.key = SlotBlockKey(parent, info.tokens);
    info.bytes = 100;
    info.used_s = now;
    return AddOne(info);
  }
  int64_t Match(std::string_view domain, std::span<const TokenId> tokens,
                int64_t max_tokens = 1'000'000) const {
    const BlockMatch match = catalog_.Match(domain, tokens, max_tokens);
    EXPECT_EQ(std::ssize(match.pages), (match.n_tokens + kPage - 1) / kPage);
    return match.n_tokens;
  }
  BlockCatalog& operator*() { return catalog_; }
  BlockCatalog* operator->() { return &catalog_; }
  const std::vector<std::string>& victims() const { return victims_; }

 private:
  bool AddOne(const BlockInfo& info) {
    if (catalog_.Find(info.key) != nullptr) return true;
    if (!catalog_.Add(info, &victims_)) return false;
    catalog_.SetWritten(info.key, &victims_);
    EXPECT_EQ(catalog_.CheckIntegrity(), OkStatus());
    return true;
  }
  BlockCatalog catalog_;
  Fingerprint parent_;
  BlockCatalog::Victims victims_;
};

TEST(BlockCatalogTest, APromptFindsWhatItSharesToTheToken) {
  Store store;
  EXPECT_TRUE(store.AddPages("d", Tokens(10)));
  EXPECT_EQ(store.Match("d", Tokens(10)), 10) << "the last page is partly filled";
  EXPECT_EQ(store.Match("d", Tokens(50)), 10);
  EXPECT_EQ(store.Match("d", Tokens(10), 9), 9);
  EXPECT_EQ(store.Match("d", Tokens(6)), 6) << "a part of a whole page";
  std::vector<TokenId> other = Tokens(10);
  other[7] = 99;
  EXPECT_EQ(store.Match("d", other), 7);
  other[0] = 99;
  EXPECT_EQ(store.Match("d", other), 0);
  EXPECT_EQ(store.Match("other", Tokens(10)), 0) << "of another domain";
  EXPECT_EQ(store.Match("d", {}), 0);
}

TEST(BlockCatalogTest, ALongerPartTakesThePlaceOfAShorterOne) {
  Store store;
  EXPECT_TRUE(store.AddPages("", Tokens(6)));
  EXPECT_TRUE(store.AddPages("", Tokens(7)));
  EXPECT_THAT(store.victims(), SizeIs(1));
  EXPECT_EQ(store->size(), 2);
  std::vector<TokenId> other = Tokens(8);
  other[6] = 99;
  EXPECT_TRUE(store.AddPages("", other));
  EXPECT_EQ(store->size(), 3) << "both go on from six tokens, each its own way";
  EXPECT_EQ(store.Match("", Tokens(9)), 7);
  EXPECT_EQ(store.Match("", other), 8);
}

TEST(BlockCatalogTest, OnlyWhatIsWrittenIsFound) {
  Store store;
  BlockInfo info;
  info.parent = BlockRoot("");
  info.tokens = Tokens(4);
  info.key = PageBlockKey(info.parent, info.tokens);
  info.groups = 1;
  info.bytes = 10;
  BlockCatalog::Victims victims;
  EXPECT_TRUE(store->Add(info, &victims));
  EXPECT_EQ(store.Match("", Tokens(4)), 0);
  EXPECT_TRUE(store->Covers(info.parent, Tokens(3), 1)) << "nobody needs to write it again";
  EXPECT_FALSE(store->Covers(info.parent, Tokens(3), 3));
  store->SetWritten(info.key, &victims);
  EXPECT_EQ(store.Match("", Tokens(4)), 4);
  store->Remove(info.key);
  EXPECT_EQ(store.Match("", Tokens(4)), 0);
  EXPECT_EQ(store->bytes(), 0);
}

TEST(BlockCatalogTest, AWindowNeedsItsPagesBeforeTheEndOnly) {
  Store store(1'000'000, false, {0, 6});
  // The window's pages exist from token 12 on.
  EXPECT_TRUE(store.AddPages("", Tokens(24), 0, 12));
  EXPECT_EQ(store.Match("", Tokens(24)), 24);
  EXPECT_EQ(store.Match("", Tokens(24), 17), 17) << "which sees from 12 on";
  EXPECT_EQ(store.Match("", Tokens(24), 16), 0) << "which sees 11";
}

// The longer block was written after its window's page was freed, the shorter one before.
TEST(BlockCatalogTest, ABlockWithMoreGroupsTakesThePlaceOfOneWithFewer) {
  Store store(1'000'000, false, {0, 6});
  EXPECT_TRUE(store.AddPages("", Tokens(12), 0, 8));
  EXPECT_EQ(store.Match("", Tokens(12)), 0);
  BlockInfo more = *store->Find(PageBlockKey(BlockRoot(""), Tokens(4)));
  const Fingerprint second = PageBlockKey(more.key, Tokens(4, 4));
  more = *store->Find(second);
  more.groups = 3;
  more.bytes = 150;
  BlockCatalog::Victims victims;
  EXPECT_TRUE(store->Add(more, &victims));
  store->SetWritten(second, &victims);
  EXPECT_THAT(victims, IsEmpty()) << "its file is written over";
  EXPECT_EQ(store.Match("", Tokens(12)), 12);
  EXPECT_EQ(store->bytes(), 350);
  EXPECT_EQ(store->CheckIntegrity(), OkStatus());
}

TEST(BlockCatalogTest, OfTwoPagesThatBeginAlikeTheOneWithTheWindowServes) {
  for (const bool slots : {false, true}) {
    Store store(1'000'000, slots, {0, 6});
    EXPECT_TRUE(store.AddPages("", Tokens(7)));
    EXPECT_TRUE(store.AddPages("", Tokens(8), 0, 100));
    if (slots) store.AddSlot("", Tokens(7));
    EXPECT_EQ(store->size(), slots ? 4 : 3);
    EXPECT_EQ(store.Match("", Tokens(8)), 7);
  }
}

TEST(BlockCatalogTest, RecurrentStateIsFoundWhereItIsExact) {
  Store store(1'000'000, true);
  EXPECT_TRUE(store.AddPages("", Tokens(15)));
  EXPECT_EQ(store.Match("", Tokens(20)), 0) << "pages alone are no place to start";
  EXPECT_TRUE(store.AddSlot("", Tokens(8)));
  EXPECT_TRUE(store.AddSlot("", Tokens(14)));
  EXPECT_EQ(store.Match("", Tokens(20)), 14);
  EXPECT_EQ(store.Match("", Tokens(20), 13), 8);
  EXPECT_EQ(store.Match("", Tokens(20), 7), 0);
  EXPECT_TRUE(store->Match("", Tokens(20), 20).slot.has_value());
}

TEST(BlockCatalogTest, WhatWasNotUsedForLongestGoesFirstFromItsEnd) {
  Store store(500);
  EXPECT_TRUE(store.AddPages("", Tokens(8, 100), 1000));
  EXPECT_TRUE(store.AddPages("", Tokens(12, 200), 2000));
  EXPECT_TRUE(store.AddPages("", Tokens(4, 300), 3000));
  EXPECT_EQ(store.Match("", Tokens(8, 100)), 4) << "its beginning is still of use";
  store->Use(store->Match("", Tokens(8, 100), 100), 4000);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 400), 4001));
  EXPECT_EQ(store.Match("", Tokens(12, 200)), 8);
  EXPECT_EQ(store.Match("", Tokens(8, 100)), 4);
  EXPECT_EQ(store->evicted(), 2);
}

TEST(BlockCatalogTest, WhatIsRefreshedIsAsRecentAndNotUsedMoreOften) {
  Store store(200);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 100), 1000));
  EXPECT_TRUE(store.AddPages("", Tokens(4, 200), 2000));
  store->Use(store->Match("", Tokens(4, 100), 4), 3000, /*n_uses=*/0);
  EXPECT_EQ(store->Find(PageBlockKey(BlockRoot(""), Tokens(4, 100)))->uses, 0);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 300), 3000));
  EXPECT_EQ(store.Match("", Tokens(4, 100)), 4);
  EXPECT_EQ(store.Match("", Tokens(4, 200)), 0);
}

TEST(BlockCatalogTest, UsesASessionAndDepthMakeWorth) {
  Store store(300);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 100), 0));
  for (int i = 0; i < 7; ++i) store->Use(store->Match("", Tokens(4, 100), 4), 0);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 200), 0));
  store->UseForSession(PageBlockKey(BlockRoot(""), Tokens(4, 200)), 0);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 300), 10));
  EXPECT_TRUE(store.AddPages("", Tokens(4, 400), 20));
  EXPECT_EQ(store.Match("", Tokens(4, 300)), 0) << "younger, but used once";
  EXPECT_EQ(store.Match("", Tokens(4, 200)), 4);
  EXPECT_EQ(store.Match("", Tokens(4, 100)), 4);
  // Worth expires: blocks used often long ago make room.
  EXPECT_TRUE(store.AddPages("", Tokens(12, 500), 100'000));
  EXPECT_EQ(store.Match("", Tokens(4, 100)), 0);
}

TEST(BlockCatalogTest, WhatIsLessUsefulThanAllThatIsThereFindsNoRoom) {
  Store store(100);
  EXPECT_TRUE(store.AddPages("", Tokens(4, 100), 0));
  store->UseForSession(PageBlockKey(BlockRoot(""), Tokens(4, 100)), 0);
  for (int i = 0; i < 100; ++i) store->Use(store->Match("", Tokens(4, 100), 4), 0);
  EXPECT_FALSE(store.AddPages("", Tokens(4, 200), 0));
  EXPECT_EQ(store.Match("", Tokens(4, 100)), 4);
  EXPECT_FALSE(store.AddPages("", Tokens(8, 100), 1'000'000)) << "its own beginning stays";
}

TEST(BlockCatalogTest, AnotherModelsFilesCountAndGoByTheirTime) {
  Store store(350);
  EXPECT_THAT(store->Load({}, {{"other/old", 100, 10}, {"other/new", 100, 90'000}}), IsEmpty());
  EXPECT_EQ(store->bytes(), 200);
  EXPECT_TRUE(store.AddPages("", Tokens(8), 100'000));
  EXPECT_THAT(store.victims(), ::testing::ElementsAre("other/old"));
  EXPECT_EQ(store->CheckIntegrity(), OkStatus());
  Store smaller(150);
  EXPECT_THAT(smaller->Load({}, {{"other/old", 100, 10}, {"other/new", 100, 90'000}}),
              ::testing::ElementsAre("other/old"));
}

TEST(BlockCatalogTest, WhatLostItsBeginningIsFoundAgainWhenThatIsThereAgain) {
  Store store;
  EXPECT_TRUE(store.AddPages("", Tokens(12)));
  const Fingerprint first = PageBlockKey(BlockRoot(""), Tokens(4));
  store->Remove(first);
  EXPECT_EQ(store->CheckIntegrity(), OkStatus());
  EXPECT_EQ(store.Match("", Tokens(12)), 0);
  EXPECT_TRUE(store.AddPages("", Tokens(4)));
  EXPECT_EQ(store.Match("", Tokens(12)), 12);
}

TEST(BlockCatalogTest, BlocksGiveWayToOtherBytes) {
  Store store(1000);
  EXPECT_TRUE(store.AddPages("a", Tokens(40)));
  EXPECT_EQ(store->bytes(), 1000);
  BlockCatalog::Victims victims;
  EXPECT_FALSE(store->MakeRoomForOthers(1001, &victims));
  EXPECT_THAT(victims, IsEmpty()) << "it would not fit anyway";
  EXPECT_TRUE(store->MakeRoomForOthers(250, &victims));
  EXPECT_THAT(victims, SizeIs(3));
  EXPECT_EQ(store.Match("a", Tokens(40)), 28) << "the ends of prefixes go first";
  store->SetOtherBytes(450, &victims);
  EXPECT_THAT(victims, SizeIs(5));
  EXPECT_EQ(store->bytes(), 500);
  EXPECT_TRUE(store->MakeRoomForOthers(550, &victims));
  EXPECT_FALSE(store->MakeRoomForOthers(551, &victims));
  // More than there is; nothing is left of the blocks, and none is added.
  store->SetOtherBytes(2000, &victims);
  EXPECT_EQ(store->bytes(), 0);
  EXPECT_FALSE(store.AddPages("a", Tokens(4)));
  store->SetOtherBytes(0, &victims);
  EXPECT_TRUE(store.AddPages("a", Tokens(4)));
}

TEST(BlockCatalogTest, RandomTrafficNeverExceedsTheBudget) {
  for (const bool slots : {false, true}) {
    std::mt19937_64 random(7);
    Store store(3000, slots);
    for (int64_t now = 0; now < 2000; ++now) {
      std::vector<TokenId> tokens;
      const int64_t n = 1 + static_cast<int64_t>(random() % 40);
      for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random() % 8 == 0));
      const bool all = store.AddPages(random() % 2 == 0 ? "a" : "b", tokens, now * 60);
      if (all && slots) store.AddSlot("a", tokens, now * 60);
      store->Use(store->Match("a", tokens, n), now * 60);
      ASSERT_LE(store->bytes(), 3000);
      if (random() % 50 == 0) store->Remove(store->Blocks().front().key);
      ASSERT_EQ(store->CheckIntegrity(), OkStatus());
    }
    EXPECT_GT(store->evicted(), 100);
    EXPECT_GT(store->size(), 20) << "it is used";
  }
}

// A look-up does not compare all other conversations' blocks, however many there are.
TEST(BlockCatalogTest, ManyConversationsThatBeginDifferentlyCostNothing) {
  for (const bool slots : {false, true}) {
    Store store(1'000'000'000, slots);
    constexpr TokenId kMany = 1000;
    const auto said = [](TokenId i) { return std::vector<TokenId>{i, 1, i, 2, i, 3}; };
    for (TokenId i = 0; i < kMany; ++i) {
      ASSERT_TRUE(store.AddPages("", said(i)));
      ASSERT_TRUE(!slots || store.AddSlot("", said(i)));
    }
    const int64_t before = store->compared_tokens();
    for (TokenId i = 0; i < 100; ++i) {
      EXPECT_EQ(store.Match("", said(10 * i)), 6);
      EXPECT_EQ(store.Match("", said(kMany + i)), 0);
      ASSERT_TRUE(store.AddPages("", said(kMany + i)));
      ASSERT_TRUE(!slots || store.AddSlot("", said(kMany + i)));
      store->Remove(PageBlockKey(PageBlockKey(BlockRoot(""), std::vector<TokenId>{i, 1, i, 2}),
                                 std::vector<TokenId>{i, 3}));
    }
    EXPECT_LT(store->compared_tokens() - before, 100 * 500);
  }
}

}  // namespace
}  // namespace weft
