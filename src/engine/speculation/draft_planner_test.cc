#include "engine/speculation/draft_planner.h"

#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

// A row takes 30 ms, and each further row 3 ms.
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

std::vector<DraftOffer> DraftOffers(size_t n, float share, int64_t most = 16) {
  return std::vector<DraftOffer>(n, {.share = share, .most = most});
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
  // That answer already advances faster.
  offers[1].pace = 4;
  EXPECT_GT(drafts.Plan(offers, steps), 0);
}

TEST(DraftPlannerTest, WithManyAnswersItIsNotWorthWhile) {
  GuessPlanner steps;  // each row costs as much as it saves
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

constexpr int64_t kAnyNumber = 100000;

TEST(DraftPlannerTest, WhatIsReadMustBeEarnedBack) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(2000);
  drafts.ObserveReading(100, 50000);
  const auto read = [&](int64_t behind, int64_t left, bool may_skip, float share = 0.9f) {
    return drafts.Read(behind, left, may_skip, DraftOffers(1, share), steps);
  };
  EXPECT_EQ(read(1000, 1, true).rows, 0);
  EXPECT_EQ(read(1000, kAnyNumber, true, 0.05f).rows, 0) << "drafts that are wrong save nothing";
  // 1000 rows take half a second. Drafts save at most 30 ms per token, the time of a step.
  EXPECT_EQ(read(1000, 30, false).rows, 0);
  EXPECT_EQ(read(1000, 600, false).last, 1000);
  EXPECT_GT(read(1000, 600, false).rows, 0);
  // The end of the text is cheaper.
  const DraftReading end = read(1000, 30, true);
  EXPECT_LT(end.last, 200);
  EXPECT_GT(end.rows, 0);
  EXPECT_LE(end.rows, end.last);
  // All of the text, if it is short or the answer is long.
  EXPECT_EQ(read(40, 60, true).last, 40);
  EXPECT_EQ(read(1000, 2000, true).last, 1000);
  EXPECT_EQ(DraftPlanner().Read(1000, kAnyNumber, true, DraftOffers(1, 0.9f), steps).rows, 0);
  EXPECT_EQ(drafts.Read(1000, kAnyNumber, true, DraftOffers(1, 0.9f), GuessPlanner()).rows, 0);
}

// A text of any length is prefilled in pieces that do not delay a step for long.
TEST(DraftPlannerTest, AnAnswerAloneReadsInPieces) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(2000);
  int64_t behind = 1000, pieces = 0;
  while (behind > 0) {
    const DraftReading reading = drafts.Read(behind, kAnyNumber, true, DraftOffers(1, 0.9f), steps);
    ASSERT_EQ(reading.last, behind);
    ASSERT_GT(reading.rows, 0);
    ASSERT_LE(reading.rows * 500, 80000);
    drafts.ObserveReading(reading.rows, reading.rows * 500);
    behind -= reading.rows;
    ++pieces;
  }
  EXPECT_LE(pieces, 12);
}

TEST(DraftPlannerTest, BesideOthersReadingTakesASmallShareOfTheTime) {
  const GuessPlanner steps = MeasuredSteps();
  const auto read_us = [&](size_t answers, int64_t row_us) {
    DraftPlanner drafts = Drafting(4 * row_us);
    int64_t total = 0;
    for (int i = 0; i < 200; ++i) {
      for (size_t answer = 0; answer < answers; ++answer) {
        const int64_t n =
            drafts.Read(kAnyNumber, kAnyNumber, true, DraftOffers(answers, 0.95f), steps).rows;
        EXPECT_LE(n, 32) << "others wait for it";
        if (n > 0) drafts.ObserveReading(n, n * row_us);
        total += n * row_us;
      }
    }
    return total;
  };
  // 200 steps of two take 6.6 s, of eight 10.2 s.
  EXPECT_GT(read_us(2, 200), 0);
  EXPECT_LE(read_us(2, 200), 400000);
  EXPECT_GT(read_us(8, 20), 0);
  EXPECT_LE(read_us(8, 20), 140000);
  EXPECT_EQ(read_us(8, 200), 0) << "slower than eight texts grow";
}

TEST(DraftPlannerTest, WrongDraftsAreTriedAgainWithATextToReadFirst) {
  const GuessPlanner steps = MeasuredSteps();
  DraftPlanner drafts = Drafting(2000);
  const std::vector<DraftOffer> wanted = DraftOffers(1, 0.05f);
  const std::vector<DraftOffer> unread = DraftOffers(1, 0.05f, /*most=*/0);
  int64_t reads = 0;
  for (int i = 0; i < 300; ++i) {
    const DraftReading reading = drafts.Read(1000, 100, true, wanted, steps);
    reads += reading.rows > 0 ? 1 : 0;
    EXPECT_EQ(drafts.Plan(unread, steps), 0);
  }
  EXPECT_GT(reads, 40) << "the trial waits until the text is read";
  EXPECT_LT(reads, 50);
  EXPECT_EQ(drafts.Plan(wanted, steps), 1);
  EXPECT_EQ(drafts.Read(1000, 100, true, wanted, steps).rows, 0);
}

}  // namespace
}  // namespace weft
