#include "engine/turns/step_planner.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::Le;

LaneView Decoding(int64_t waited_us = 0) {
  return {.decoding = true, .pending = 1, .waited_us = waited_us};
}
LaneView Prompt(int64_t pending, int priority = 0, int64_t age_us = 0) {
  return {.pending = pending, .priority = priority, .age_us = age_us};
}

// A prompt row costs 0.1 ms and a decode step 10 ms: the allowance is 13 ms.
StepPlanner Measured(const StepPlanner::Options& options) {
  StepPlanner planner(options);
  planner.Observe({.decode_rows = 4, .total_us = 10000});
  planner.Observe({.prompt_rows = 100, .total_us = 10000});
  return planner;
}
StepPlanner Measured() { return Measured({.pause_points = 55}); }

TEST(StepPlannerTest, APromptAloneGetsAWholeLongStep) {
  const StepPlanner planner(StepPlanner::Options{});
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(2000)}), ElementsAre(512));
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(100)}), ElementsAre(100));
  EXPECT_THAT(planner.PlanShort(std::vector{Prompt(100)}, nullptr), ElementsAre(0));
}

TEST(StepPlannerTest, OtherEnginesShareTheTimeBetweenPauses) {
  StepPlanner planner = Measured({.max_step_tokens = 4096, .pause_points = 1, .step_us = 100000});
  const std::vector prompts = {Prompt(10000)};
  EXPECT_THAT(planner.PlanLong(prompts), ElementsAre(2000));
  planner.SetOthers(1);
  EXPECT_THAT(planner.PlanLong(prompts), ElementsAre(2000));
  planner.SetOthers(4);
  EXPECT_THAT(planner.PlanLong(prompts), ElementsAre(496));
  StepPlanner unmeasured(StepPlanner::Options{});
  unmeasured.SetOthers(1);
  EXPECT_THAT(unmeasured.PlanLong(prompts), ElementsAre(64));
}

TEST(StepPlannerTest, EveryDecodingSequenceGetsItsRowThoseThatWaitedLongestFirst) {
  const StepPlanner planner({.max_step_tokens = 8});
  EXPECT_THAT(planner.PlanShort(std::vector{Decoding(), Decoding()}, nullptr), ElementsAre(1, 1));
  EXPECT_THAT(planner.PlanLong(std::vector{Decoding(), Decoding()}), Each(0));
  std::vector<LaneView> many;
  many.reserve(20);
  for (int i = 0; i < 20; ++i) many.push_back(Decoding(i));
  const auto rows = planner.PlanShort(many, nullptr);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), 8);
  EXPECT_EQ(std::accumulate(rows.begin() + 12, rows.end(), int64_t{0}), 8);
}

TEST(StepPlannerTest, GuessesGetRowsWhereNoPromptIsUnderWay) {
  const StepPlanner planner = Measured();
  const std::vector<float> gains = {0.95f, 0.9f, 0.85f};
  LaneView guessing = Decoding();
  guessing.guesses.gains = gains;
  EXPECT_THAT(planner.PlanShort(std::vector{guessing}, nullptr), ElementsAre(4));
  EXPECT_THAT(planner.PlanShort(std::vector{guessing, Prompt(2)}, nullptr), ElementsAre(1, 2));
  const LaneView paused = Prompt(5000);
  EXPECT_THAT(planner.PlanShort(std::vector{guessing}, &paused), ElementsAre(1));
  EXPECT_THAT(planner.PlanLong(std::vector{guessing}), ElementsAre(0));
}

// Recurrent state that went back computes a few rows again.
TEST(StepPlannerTest, ADecodingSequenceMayNeedSeveralRows) {
  const StepPlanner planner({.max_step_tokens = 8});
  LaneView behind = Decoding();
  behind.pending = 5;
  EXPECT_THAT(planner.PlanShort(std::vector{behind, Decoding()}, nullptr), ElementsAre(5, 1));
  EXPECT_THAT(planner.PlanShort(std::vector{behind, behind}, nullptr), ElementsAre(5, 3));
  EXPECT_THAT(planner.PlanLong(std::vector{behind}), ElementsAre(0));
}

TEST(StepPlannerTest, AStepBesideAPausedOneHasFewerRows) {
  const StepPlanner planner({.max_beside_tokens = 4});
  const LaneView paused = Prompt(5000);
  const std::vector<LaneView> many(20, Decoding());
  const auto rows = planner.PlanShort(many, &paused);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), 4);
}

TEST(StepPlannerTest, APromptIsNotStarvedByDecodingThatFillsTheStep) {
  const StepPlanner planner({.max_step_tokens = 4});
  std::vector<LaneView> lanes(6, Decoding());
  lanes.push_back(Prompt(3));
  EXPECT_EQ(planner.PlanShort(lanes, nullptr).back(), 1);
}

TEST(StepPlannerTest, WhatFitsIntoTheAllowanceGoesBesideDecoding) {
  const StepPlanner planner = Measured();
  // 130 rows fit into 13 ms.
  const std::vector fits{Decoding(), Prompt(120)};
  EXPECT_THAT(planner.PlanLong(fits), Each(0));
  EXPECT_THAT(planner.PlanShort(fits, nullptr), ElementsAre(1, 120));
  const std::vector more{Decoding(), Prompt(150), Prompt(151)};
  EXPECT_THAT(planner.PlanLong(more), ElementsAre(0, 150, 151));
}

TEST(StepPlannerTest, ALongStepHasNoMoreRowsThanItsPausesLet) {
  // 51 parts of at most 10 ms each: 5,000 rows; with two parts 100 ms and 1,000 rows.
  const std::vector alone{Prompt(100000)};
  EXPECT_THAT(
      Measured({.max_step_tokens = 8192, .pause_points = 49, .step_us = 10000}).PlanLong(alone),
      ElementsAre(4992));
  // Deep in a prompt a row costs more: here another 0.1 ms of attention.
  StepPlanner planner = Measured({.max_step_tokens = 8192, .pause_points = 49, .step_us = 10000});
  planner.Observe(
      {.prompt_rows = 100, .attended_rows = 100 * 10000, .total_us = 20000, .attention_us = 10000});
  LaneView deep = Prompt(100000);
  deep.depth = 10000;
  const auto rows = planner.PlanLong(std::vector{deep});
  EXPECT_GT(rows[0], 2000);
  EXPECT_LT(rows[0], 2500);
}

TEST(StepPlannerTest, PromptsAreComputedOneAfterTheOther) {
  const StepPlanner planner = Measured();
  // 40 ms of rows fill a step.
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(450), Prompt(500)}), ElementsAre(450, 0));
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(500), Prompt(100), Prompt(350)}),
              ElementsAre(0, 100, 300));
}

TEST(StepPlannerTest, TheLeastWorkLeftGoesFirstAndWaitingBringsALongOneForward) {
  const StepPlanner planner = Measured();
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(4000), Prompt(450)}), ElementsAre(0, 450));
  // 400 ms of work, less its waiting time.
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(4000, 0, 750000), Prompt(450)}),
              ElementsAre(512, 0));
  // Among equally long prompts the first to arrive wins.
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(450, 0, 1000), Prompt(450, 0, 2000)}),
              ElementsAre(0, 450));
}

TEST(StepPlannerTest, AShorterPromptDoesNotWaitForAPausedOneAndALongerOneDoes) {
  const StepPlanner planner = Measured();
  const LaneView paused = Prompt(4000);
  const std::vector lanes{Prompt(20), Prompt(5000)};
  EXPECT_THAT(planner.PlanShort(lanes, &paused), ElementsAre(20, 0));
  // However long the paused one has waited, it continues in between.
  LaneView old = paused;
  old.age_us = 3600'000'000;
  EXPECT_THAT(planner.PlanShort(lanes, &old), ElementsAre(20, 0));
}

TEST(StepPlannerTest, RowsBeforeAPromptAreThoseOfPromptsInFrontOfIt) {
  const StepPlanner planner = Measured();
  EXPECT_THAT(planner.RowsBefore(std::vector{Prompt(500), Decoding(), Prompt(100), Prompt(350)}),
              ElementsAre(450, 0, 0, 100));
  // The aged one is next.
  EXPECT_THAT(planner.RowsBefore(std::vector{Prompt(4000, 0, 750000), Prompt(450)}),
              ElementsAre(0, 4000));
  // The second needs rows of the first, however short it is.
  LaneView sibling = Prompt(90);
  sibling.after = 0;
  EXPECT_THAT(planner.RowsBefore(std::vector{Prompt(300), sibling, Prompt(200), Prompt(400)}),
              ElementsAre(200, 500, 0, 590));
}

TEST(StepPlannerTest, RowsOfTheOpenStepComeBeforeAllButThoseThatNeedNotWait) {
  const StepPlanner planner = Measured();
  LaneView open = Prompt(1000);
  open.in_step = 300;
  EXPECT_THAT(planner.RowsBefore(std::vector{open, Prompt(2000)}), ElementsAre(0, 1000));
  EXPECT_THAT(planner.RowsBefore(std::vector{Prompt(20), open, Prompt(2000), Prompt(30)}),
              ElementsAre(0, 0, 1050, 20));
  // One that has waited long is next after the step, not after the whole prompt.
  EXPECT_THAT(planner.RowsBefore(std::vector{Prompt(2000, 0, 750000), open}), ElementsAre(300, 0));
  LaneView urgent = Prompt(2000, 1);
  EXPECT_THAT(planner.RowsBefore(std::vector{urgent, open}), ElementsAre(0, 0));
  // One that needs rows of the open step waits for it, and no other for that one.
  open.age_us = 750000;
  LaneView sibling = Prompt(10);
  sibling.after = 0;
  EXPECT_THAT(planner.RowsBefore(std::vector{open, sibling, Prompt(30)}), ElementsAre(0, 1000, 0));
}

TEST(StepPlannerTest, APausedStepKeepsAShareOfTheTime) {
  const StepPlanner planner = Measured();
  EXPECT_EQ(planner.SliceAfter(10000, 4, 0), 13000);
  EXPECT_EQ(planner.SliceAfter(25000, 4, 150), 3250);
  EXPECT_EQ(planner.SliceAfter(30000, 0, 64), 10000);
  // While others decode, shorter prompts get the rest: 9.75 ms.
  const LaneView paused = Prompt(4000);
  EXPECT_THAT(Measured({.max_beside_tokens = 512, .pause_points = 55})
                  .PlanShort(std::vector{Decoding(), Prompt(300)}, &paused),
              ElementsAre(1, 97));
}

TEST(StepPlannerTest, AWholeTextIsTakenTogetherOrNotAtAll) {
  const auto text = [](int64_t rows) { return LaneView{.pending = rows, .whole = true}; };
  const StepPlanner planner{StepPlanner::Options()};
  // A step is full with 256 rows of texts, and a longer text has one of its own.
  EXPECT_THAT(planner.PlanLong(std::vector{text(100), text(100), text(100)}),
              ElementsAre(100, 100, 0));
  EXPECT_THAT(planner.PlanLong(std::vector{text(500)}), ElementsAre(500));
  EXPECT_THAT(planner.PlanLong(std::vector{text(500), text(300)}), ElementsAre(0, 300));
  // Prompts that fit run while a step is paused.
  const LaneView paused = text(500);
  EXPECT_THAT(planner.PlanShort(std::vector{text(60), text(200)}, &paused), ElementsAre(60, 0));
}

TEST(StepPlannerTest, ARunIsNeverCutAndAlwaysComesIntoAStep) {
  const auto prompt = [](int64_t pending, std::vector<TokenRun> runs) {
    LaneView lane = Prompt(pending);
    lane.runs = std::move(runs);
    return lane;
  };
  const StepPlanner planner = Measured();
  // Between others, of the size of the step.
  EXPECT_THAT(planner.PlanLong(std::vector{prompt(2000, {{300, 556}})}), ElementsAre(300));
  EXPECT_THAT(planner.PlanLong(std::vector{prompt(2000, {{20, 276}, {280, 536}})}),
              ElementsAre(280));
  // Alone it is computed beside decoding, however long it takes.
  const LaneView first = prompt(400, {{0, 256}});
  EXPECT_THAT(planner.PlanLong(std::vector{Decoding(), first}), ElementsAre(0, 400));
  EXPECT_THAT(planner.PlanShort(std::vector{Decoding(), first}, nullptr), ElementsAre(1, 0));
  const LaneView small = prompt(30, {{0, 20}});
  EXPECT_THAT(planner.PlanLong(std::vector{Decoding(), small}), ElementsAre(0, 30));
  // Others do not wait for it.
  const LaneView paused = Prompt(5000);
  EXPECT_THAT(planner.PlanShort(std::vector{first, Prompt(40)}, &paused), ElementsAre(0, 40));
  // The caller's chunks are smaller.
  LaneView chunked = prompt(400, {{10, 266}});
  chunked.max_chunk = 20;
  EXPECT_THAT(planner.PlanLong(std::vector{chunked}), ElementsAre(10));
  chunked = prompt(390, {{0, 256}});
  chunked.max_chunk = 20;
  EXPECT_THAT(planner.PlanLong(std::vector{chunked}), ElementsAre(256));
}

TEST(StepPlannerTest, TheAllowanceIsBounded) {
  StepPlanner planner({.decode_stretch = 3, .step_us = 50000});
  EXPECT_EQ(planner.SliceAfter(1000, 1, 0), 32500);  // nothing measured yet
  planner.Observe({.decode_rows = 1, .total_us = 200000});
  EXPECT_EQ(planner.SliceAfter(200000, 1, 0), 162500);
}

TEST(StepPlannerTest, PriorityBeatsLength) {
  const StepPlanner planner({.max_step_tokens = 100});
  EXPECT_THAT(planner.PlanLong(std::vector{Prompt(100), Prompt(500, 1)}), ElementsAre(0, 100));
  const LaneView paused = Prompt(10);
  EXPECT_THAT(planner.PlanShort(std::vector{Prompt(50, 1), Prompt(50)}, &paused),
              ElementsAre(50, 0));
}

TEST(StepPlannerTest, TenantsHaveTurnsWhateverTheirPrioritiesAndLengths) {
  const StepPlanner planner = Measured({.max_step_tokens = 100, .pause_points = 55});
  const Tenant had_more{.id = 1, .clock_us = 50000}, had_less{.id = 2, .clock_us = 40000};
  LaneView urgent = Prompt(80, 1), short_one = Prompt(10), long_one = Prompt(2000);
  urgent.tenant = short_one.tenant = &had_more;
  long_one.tenant = &had_less;
  EXPECT_THAT(planner.PlanLong(std::vector{urgent, long_one}), ElementsAre(0, 100));
  EXPECT_THAT(planner.PlanShort(std::vector{long_one}, &short_one), ElementsAre(64));
  EXPECT_THAT(planner.PlanShort(std::vector{short_one}, &long_one), ElementsAre(0));
  // A deficit of 10 ms is one prompt of 60 rows and another; by weight two more.
  LaneView piece = Prompt(60);
  piece.tenant = &had_less;
  EXPECT_THAT(planner.RowsBefore(std::vector{piece, piece, piece, urgent}),
              ElementsAre(0, 60, 200, 120));
  const Tenant heavy{.id = 2, .weight = 2, .clock_us = 40000};
  piece.tenant = &heavy;
  EXPECT_THAT(planner.RowsBefore(std::vector{piece, piece, piece, piece, piece, urgent}),
              ElementsAre(0, 60, 120, 180, 320, 240));
}

TEST(StepPlannerTest, PromptsOfATenantAheadDoNotRideAlongWithAnothers) {
  const StepPlanner planner = Measured();
  const Tenant behind{.id = 1}, ahead{.id = 2, .clock_us = 200'000};
  LaneView decoding = Decoding(), own = Prompt(300), other = Prompt(5000);
  decoding.tenant = own.tenant = &behind;
  other.tenant = &ahead;
  EXPECT_THAT(planner.PlanLong(std::vector{decoding, own, other}), ElementsAre(0, Gt(0), 0));
  EXPECT_THAT(planner.PlanLong(std::vector{decoding, other}), ElementsAre(0, Gt(0)));
  EXPECT_THAT(planner.PlanLong(std::vector{own, other}), ElementsAre(300, Gt(0)));
  // A quarter of 13 ms.
  own.pending = 4;
  const auto rows = planner.PlanShort(std::vector{decoding, own, other}, nullptr);
  EXPECT_THAT(rows, ElementsAre(1, 4, AllOf(Gt(0), Le(33))));
}

// A tenant decodes and another has prompts, in simulated time: each has the time that its share
// allows, whatever a prompt's length.
TEST(StepPlannerTest, PromptsTakeNoMoreTimeFromDecodingThanTheirShare) {
  std::mt19937 random(1);
  const StepPlanner planner = Measured();
  const double step_us = planner.DecodeStepUs();
  for (int program = 0; program < 200; ++program) {
    const double weight = std::uniform_int_distribution<int>(1, 3)(random);
    Tenant decodes{.id = 1, .weight = weight}, reads{.id = 2};
    LaneView decoding = Decoding(), prompt = Prompt(0), rest;
    decoding.tenant = &decodes;
    prompt.tenant = &reads;
    double paused_us = 0;  // time left for the long step
    double decode_us = 0, prompt_us = 0;
    while (decode_us < 20e6) {
      if (prompt.pending == 0) {
        prompt.pending = std::uniform_int_distribution<int64_t>(1, 5000)(random);
        prompt.depth = 0;
      }
      if (paused_us <= 0) {
        const int64_t rows = planner.PlanLong(std::vector{decoding, prompt})[1];
        paused_us = planner.PromptCostUs(rows, prompt.depth);
        reads.Charge(paused_us);
        prompt.pending -= rows;
        if (prompt.pending == 0) continue;
      }
      rest = prompt;
      const auto rows =
          planner.PlanShort(std::vector{decoding, prompt}, paused_us > 0 ? &rest : nullptr);
      const bool is_ahead = StepPlanner::IsAhead(&reads, &decodes);
      const double cost_us = planner.PromptCostUs(rows[1], prompt.depth);
      reads.Charge(cost_us);
      decodes.Charge(step_us);
      prompt.pending -= rows[1];
      decode_us += step_us;
      const auto slice_us = static_cast<double>(planner.SliceAfter(10000, 1, rows[1], is_ahead));
      prompt_us += cost_us + std::clamp(paused_us, 0.0, slice_us);
      paused_us -= slice_us;
    }
    EXPECT_NEAR(prompt_us * weight / decode_us, 1, 0.1) << "weight " << weight;
  }
}

// Clients that send a short prompt as soon as their last one is done, and a long one among them: in
// simulated time, where a row costs 0.1 ms.
TEST(StepPlannerTest, ShortPromptsInALoopDoNotStarveALongOne) {
  std::mt19937 random(1);
  const auto up = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  constexpr int64_t kRowUs = 100;
  const StepPlanner planner = Measured();
  for (int program = 0; program < 200; ++program) {
    const auto n_clients = static_cast<size_t>(up(1, 12));
    const int64_t n_short = up(1, 500), n_long = up(1000, 30000);
    struct Waiting {
      LaneView view;
      int64_t since_us = 0;
    };
    std::vector<Waiting> prompts(n_clients + 1, {.view = Prompt(n_short)});
    prompts[0].view = Prompt(n_long);
    int64_t now_us = 0;
    while (prompts[0].view.pending > 0) {
      std::vector<LaneView> views;
      for (Waiting& prompt : prompts) {
        prompt.view.age_us = now_us - prompt.since_us;
        views.push_back(prompt.view);
      }
      const std::vector<int64_t> rows = planner.PlanLong(views);
      const int64_t n_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
      ASSERT_GT(n_rows, 0);
      now_us += n_rows * kRowUs;
      for (size_t i = 0; i < prompts.size(); ++i) {
        LaneView& view = prompts[i].view;
        view.pending -= rows[i];
        view.depth = view.done = view.done + rows[i];
        if (i > 0 && view.pending == 0) prompts[i] = {.view = Prompt(n_short), .since_us = now_us};
      }
    }
    // No later than next to one client that has half of the time, except for those that have waited
    // longer.
    const auto others = static_cast<int64_t>(n_clients) * n_short;
    EXPECT_LE(now_us, (2 * n_long + others + 512) * kRowUs) << n_clients << " " << n_short;
  }
}

TEST(StepPlannerTest, AChunkLimitOfTheCallerHolds) {
  const StepPlanner planner({.max_step_tokens = 100});
  LaneView lane = Prompt(50);
  lane.max_chunk = 7;
  EXPECT_THAT(planner.PlanLong(std::vector{lane}), ElementsAre(7));
}

}  // namespace
}  // namespace weft
