#include "doors/http/byte_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace weft::serve {
namespace {

TEST(ByteBudget, AnAccountHasItsShareAndAllHaveTheTotal) {
  ByteBudget budget(100, 60);
  ByteBudget::Hold first(&budget, "a"), second(&budget, "a"), other(&budget, "b"),
      third(&budget, "c");
  EXPECT_TRUE(first.Resize(40).ok());
  EXPECT_EQ(second.Resize(30).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(second.Resize(20).ok());
  EXPECT_TRUE(other.Resize(35).ok());
  EXPECT_EQ(third.Resize(6).code(), StatusCode::kUnavailable);
  EXPECT_EQ(budget.held(), 95u) << "what was refused is not held";
  EXPECT_TRUE(third.Resize(5).ok());
  EXPECT_TRUE(first.Resize(10).ok()) << "less is always possible";
  EXPECT_EQ(second.Resize(27).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(second.Resize(26).ok()) << "36 of the 60 that others leave";
}

TEST(ByteBudget, HoweverManyFillTheirSharesTheNextFindsRoom) {
  ByteBudget budget(1000, 500);
  std::vector<ByteBudget::Hold> holds;
  for (const char* account : {"a", "b", "c", "d"}) {
    while (holds.emplace_back(&budget, account).Resize(1).ok()) continue;
    EXPECT_LE(budget.held(), 940u) << account;
  }
  EXPECT_GT(budget.held(), 900u);
  ByteBudget::Hold next(&budget, "e");
  EXPECT_TRUE(next.Resize(50).ok());
}

TEST(ByteBudget, WhatIsAloneIsNeverRefusedAndLeavesOthersTheirShare) {
  ByteBudget budget(100, 50);
  ByteBudget::Hold only(&budget, "a");
  EXPECT_TRUE(only.Resize(300).ok());
  EXPECT_EQ(budget.held(), 50u);
  ByteBudget::Hold more(&budget, "a"), second(&budget, "b"), third(&budget, "c");
  EXPECT_EQ(more.Resize(1).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(second.Resize(50).ok());
  EXPECT_EQ(third.Resize(1).code(), StatusCode::kUnavailable);
}

TEST(ByteBudget, WhatIsThereAlreadyCountsAgainstWhatComes) {
  ByteBudget budget(100, 50);
  ByteBudget::Hold first(&budget, "a"), second(&budget, "a"), other(&budget, "b");
  ASSERT_TRUE(first.Resize(40).ok());
  second.Take(80);
  EXPECT_EQ(budget.held(), 120u);
  EXPECT_EQ(other.Resize(1).code(), StatusCode::kUnavailable);
  second.Take(10);
  EXPECT_EQ(second.Resize(11).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(other.Resize(50).ok());
}

TEST(ByteBudget, AHoldGivesBackWhatItHasAtItsEnd) {
  ByteBudget budget(100, 50);
  {
    ByteBudget::Hold hold(&budget, "a");
    ASSERT_TRUE(hold.Resize(50).ok());
    ByteBudget::Hold moved = std::move(hold);
    EXPECT_EQ(budget.held(), 50u);
    moved = ByteBudget::Hold(&budget, "b");
    EXPECT_EQ(budget.held(), 0u);
    ASSERT_TRUE(moved.Resize(7).ok());
  }
  EXPECT_EQ(budget.held(), 0u);
}

TEST(ByteBudget, KnowsOnlyAccountsThatHoldSomething) {
  ByteBudget budget(100, 50);
  ByteBudget::Hold all(&budget, "a"), rest(&budget, "b");
  ASSERT_TRUE(all.Resize(50).ok());
  ASSERT_TRUE(rest.Resize(50).ok());
  for (int i = 0; i < 20; ++i) {
    ByteBudget::Hold refused(&budget, std::to_string(i));
    EXPECT_EQ(refused.Resize(1).code(), StatusCode::kUnavailable);
    EXPECT_TRUE(refused.Resize(0).ok());
  }
  EXPECT_EQ(budget.n_accounts(), 2u) << "addresses are many";
  rest = {};
  EXPECT_EQ(budget.n_accounts(), 1u);
  all = {};
  EXPECT_EQ(budget.n_accounts(), 0u);
}

TEST(ByteBudget, ManySmallValuesCountForMoreThanTheirText) {
  const std::string text(3000, 'x');
  std::string values;
  for (int i = 0; i < 1000; ++i) values += "[],";
  EXPECT_LT(EstimateParsedBytes(text), 10 * text.size());
  EXPECT_GT(EstimateParsedBytes(values), 50 * values.size());
  // No more values than are ever read.
  EXPECT_LT(EstimateParsedBytes(std::string(30 << 20, ',')), uint64_t{512} << 20);
}

}  // namespace
}  // namespace weft::serve
