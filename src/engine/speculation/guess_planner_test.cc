#include "engine/speculation/guess_planner.h"

#include <numeric>

#include "engine/speculation/guesses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Gains of `n` draft tokens, each of which is accepted with probability `share`.
std::vector<float> Gains(int n, float share) {
  std::vector<float> gains;
  for (float gain = share; n > 0; --n, gain *= share) gains.push_back(gain);
  return gains;
}

// A row takes 30 ms, and each further row 3 ms.
GuessPlanner MeasuredGuesses() {
  GuessPlanner planner;
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64}) planner.Observe(rows, 0, 27000 + 3000 * rows);
  return planner;
}

int64_t Total(const std::vector<int64_t>& taken) {
  return std::accumulate(taken.begin(), taken.end(), int64_t{0});
}

TEST(GuessPlannerTest, NothingIsGuessedBeforeAStepIsMeasured) {
  const std::vector<float> gains = Gains(8, 0.99f);
  GuessPlanner planner;
  EXPECT_THAT(planner.Plan(std::vector<GuessOffer>{{gains}}, 64, false), ElementsAre(0));
  planner.Observe(1, 0, 30000);
  EXPECT_GT(planner.Plan(std::vector<GuessOffer>{{gains}}, 64, false)[0], 4);
}

TEST(GuessPlannerTest, LikelyGuessesAreTakenAndUnlikelyOnesAreNot) {
  const GuessPlanner planner = MeasuredGuesses();
  const auto taken = [&](float share) {
    const std::vector<float> gains = Gains(16, share);
    return planner.Plan(std::vector<GuessOffer>{{gains}}, 64, false)[0];
  };
  EXPECT_EQ(taken(0.98f), 16);
  EXPECT_GT(taken(0.8f), 2);
  EXPECT_LT(taken(0.8f), 12);
  EXPECT_EQ(taken(0.1f), 0);
  EXPECT_EQ(taken(0.0f), 0);
}

TEST(GuessPlannerTest, NoSessionWaitsForAnothersGuesses) {
  const GuessPlanner planner = MeasuredGuesses();
  const std::vector<float> gains = Gains(16, 0.98f);
  std::vector<GuessOffer> offers = {{.gains = gains}, {}, {}};
  EXPECT_THAT(planner.Plan(offers, 64, false), Each(0));
  // Sessions that recently advanced three tokens per step may wait for another's draft tokens.
  offers[1].pace = offers[2].pace = 3;
  EXPECT_GT(Total(planner.Plan(offers, 64, false)), 4);
  for (GuessOffer& offer : offers) offer.gains = gains;
  EXPECT_GT(Total(planner.Plan(offers, 64, false)), 12);
}

TEST(GuessPlannerTest, WithManySessionsOnlyTheLikeliestAreWorthTheirRows) {
  const GuessPlanner planner = MeasuredGuesses();
  const std::vector<float> gains = Gains(8, 0.7f);
  const auto each = [&](size_t n) {
    const std::vector<GuessOffer> offers(n, GuessOffer{.gains = gains});
    return static_cast<double>(Total(planner.Plan(offers, 64, false))) / static_cast<double>(n);
  };
  EXPECT_GT(each(1), each(4));
  EXPECT_GE(each(4), each(12));
  EXPECT_EQ(each(32), 0);
}

TEST(GuessPlannerTest, RoomAndPromptsLimitThem) {
  const GuessPlanner planner = MeasuredGuesses();
  const std::vector<float> gains = Gains(16, 0.98f);
  EXPECT_THAT(planner.Plan(std::vector<GuessOffer>{{gains}}, 3, false), ElementsAre(3));
  EXPECT_THAT(planner.Plan(std::vector<GuessOffer>{{gains}}, 0, false), ElementsAre(0));
  EXPECT_THAT(planner.Plan(std::vector<GuessOffer>{{gains}}, 64, true), ElementsAre(0));
  const std::vector<float> sure(5, Guesses::kSure);
  EXPECT_THAT(planner.Plan(std::vector<GuessOffer>{{gains}, {sure}}, 64, true), ElementsAre(0, 5));
  EXPECT_THAT(GuessPlanner().Plan(std::vector<GuessOffer>{{sure}}, 64, false), ElementsAre(5));
}

TEST(GuessPlannerTest, NowAndThenAStepHasNoneSoThatTheirWorthIsMeasured) {
  GuessPlanner planner = MeasuredGuesses();
  const std::vector<float> gains = Gains(4, 0.98f);
  const std::vector<GuessOffer> offers = {{gains}};
  int plain = 0;
  for (int i = 0; i < 650; ++i) {
    const int64_t taken = planner.Plan(offers, 64, false)[0];
    if (taken == 0) ++plain;
    planner.Observe(1, taken, 30000 + 3000 * taken);
  }
  EXPECT_EQ(plain, 10);
}

TEST(GuessPlannerTest, RowsThatTurnOutDearAreNotTaken) {
  GuessPlanner planner;
  const std::vector<float> gains = Gains(16, 0.9f);
  const std::vector<GuessOffer> offers = {{gains}};
  double tokens = 0, us = 0;
  int64_t guessed = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t taken = planner.Plan(offers, 64, false)[0];
    planner.Observe(1, taken, 30000 * (1 + taken));
    if (i < 200) continue;
    guessed += taken;
    tokens += 1 + std::accumulate(gains.begin(), gains.begin() + taken, 0.0);
    us += 30000.0 * static_cast<double>(1 + taken);
  }
  EXPECT_GT(guessed, 0) << "now and then it is tried again";
  EXPECT_GT(tokens / us * 30000, 0.98) << "which costs next to nothing";
}

TEST(GuessPlannerTest, OneSlowStepDoesNotEndIt) {
  GuessPlanner planner;
  const std::vector<float> gains = Gains(8, 0.9f);
  const std::vector<GuessOffer> offers = {{gains}};
  for (int i = 0; i < 100; ++i) {
    const int64_t taken = planner.Plan(offers, 64, false)[0];
    planner.Observe(1, taken, i == 50 ? 3000000 : 27000 + 3000 * (1 + taken));
    if (i > 10 && i < 60) {
      EXPECT_GT(taken, 2) << i;
    }
  }
}

}  // namespace
}  // namespace weft
