#include "engine/speculation/draft_planner.h"

#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// A row takes 30 ms, and each further one 3 ms.
GuessPlanner MeasuredSteps() {
  GuessPlanner planner;
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64}) planner.Observe(rows, 0, 27000 + 3000 * rows);
  return planner;
}

DraftPlanner Drafting(int64_t us) {
  DraftPlanner planner;
  for (const int64_t rows : {1, 2, 4, 8, 16}) planner.Observe(rows, us + us / 10 * rows);
  return planner;
}

std::vector<DraftOffer> DraftOffers(size_t n, float share) {
  return std::vector<DraftOffer>(n, {.share = share, .most = 16});
}

TEST(DraftPlannerTest, NothingIsDraftedBeforeBothAreMeasured) {
  DraftPlanner drafts;
  EXPECT_EQ(drafts.Plan(DraftOffers(1, 0.9f), MeasuredSteps()), 0);
  drafts.Observe(1, 2000);
  EXPECT_EQ(drafts.Plan(DraftOffers(1, 0.9f), GuessPlanner()), 0);
  EXPECT_GT(drafts.Plan(DraftOffers(1, 0.9f), MeasuredSteps()), 2);
}

TEST(DraftPlannerTest, RightAndCheapDraftsGoFurther) {
  const GuessPlanner steps = MeasuredSteps();
  const auto depth = [&](int64_t us, float share) {
    return Drafting(us).Plan(DraftOffers(1, share), steps);
  };
  EXPECT_GT(depth(2000, 0.9f), depth(2000, 0.6f));
  EXPECT_GT(depth(1000, 0.9f), depth(8000, 0.9f));
  EXPECT_GT(depth(2000, 0.6f), 0);
  EXPECT_EQ(depth(2000, 0.1f), 0);
  EXPECT_EQ(depth(40000, 0.9f), 0);
}

TEST(DraftPlannerTest, NobodyWaitsForAnothersDrafts) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(2000);
  std::vector<DraftOffer> offers = DraftOffers(3, 0.9f);
  EXPECT_GT(drafts.Plan(offers, steps), 0);
  offers[1].share = 0;
  EXPECT_EQ(drafts.Plan(offers, steps), 0);
  // It advances by itself.
  offers[1].pace = 4;
  EXPECT_GT(drafts.Plan(offers, steps), 0);
}

TEST(DraftPlannerTest, WithManyAnswersItIsNotWorthWhile) {
  GuessPlanner steps;  // rows that cost as much as they save
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64}) steps.Observe(rows, 0, 20000 + 4000 * rows);
  DraftPlanner drafts = Drafting(3000);
  EXPECT_GT(drafts.Plan(DraftOffers(1, 0.75f), steps), drafts.Plan(DraftOffers(8, 0.75f), steps));
  EXPECT_EQ(drafts.Plan(DraftOffers(32, 0.75f), steps), 0);
  EXPECT_FALSE(drafts.CouldPay(DraftOffers(32, 0.1f), steps));
}

TEST(DraftPlannerTest, WhatWasWrongIsTriedAgainSeldom) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(2000);
  int64_t tried = 0;
  for (int i = 0; i < 1024; ++i) tried += drafts.Plan(DraftOffers(1, 0.05f), steps);
  EXPECT_EQ(tried, 4);
  DraftPlanner dear = Drafting(60000);
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(dear.Plan(DraftOffers(1, 0.05f), steps), 0);
}

TEST(DraftPlannerTest, OneThatWasSlowIsUsedAgainOnceItIsNot) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(60000);
  EXPECT_FALSE(drafts.CouldPay(DraftOffers(4, 0.9f), steps));
  drafts.ObserveAnew(2000);
  EXPECT_TRUE(drafts.CouldPay(DraftOffers(4, 0.9f), steps));
  EXPECT_GT(drafts.Plan(DraftOffers(4, 0.9f), steps), 0);
}

TEST(DraftPlannerTest, CatchingUpTakesASmallShareOfTheTime) {
  const GuessPlanner steps = MeasuredSteps();
  const auto rows = [&](int64_t answers) {
    DraftPlanner drafts = Drafting(2000);
    int64_t total = 0;
    for (int i = 0; i < 100; ++i) {
      const int64_t n = drafts.RowsToCatchUp(100000, answers, steps);
      if (n > 0) drafts.ObserveCatchUp(n, n * 200);
      total += n;
    }
    return total;
  };
  // 100 steps take 3 s alone, and beside seven others 5.1 s.
  EXPECT_GT(rows(1) * 200, 500000);
  EXPECT_LE(rows(1) * 200, 800000);
  EXPECT_LE(rows(8) * 200, 60000);
  DraftPlanner drafts = Drafting(2000);
  EXPECT_EQ(drafts.RowsToCatchUp(1000, 1, GuessPlanner()), 0);
}

}  // namespace
}  // namespace weft
