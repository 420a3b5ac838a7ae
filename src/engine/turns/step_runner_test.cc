#include "engine/turns/step_runner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

constexpr auto kNever = [] { return false; };

TEST(StepRunnerTest, ReadsPromptsInLongStepsAndWritesInShortOnes) {
  TurnParts parts;
  const SubmittedTurn turn = parts.Submit(Greedy(RandomTokens(60, 1), 3));
  parts.Begin();
  parts.steps->Plan();
  Lane* const lane = parts.Find(turn)->lanes[0].get();
  EXPECT_TRUE(lane->in_step());
  EXPECT_FALSE(lane->is_ready());
  while (lane->in_step()) EXPECT_TRUE(parts.steps->Run(kNever));
  EXPECT_EQ(lane->session->computed(), 60);
  EXPECT_EQ(std::ssize(lane->generated), 1);
  EXPECT_EQ(parts.Find(turn)->stage, TurnStage::kWriting);
  parts.steps->Plan();
  EXPECT_FALSE(lane->in_step());
  EXPECT_TRUE(parts.steps->Run(kNever));
  EXPECT_EQ(std::ssize(lane->generated), 2);
}

TEST(StepRunnerTest, AnAbandonedStepCountsAsNeverBegun) {
  TurnParts parts;
  const SubmittedTurn turn = parts.Submit(Greedy(RandomTokens(60, 1), 3));
  parts.Begin();
  parts.steps->Plan();
  ActiveTurn* const active = parts.Find(turn);
  ASSERT_TRUE(active->in_step());
  active->End(FinishReason::kCancelled, OkStatus());
  EXPECT_FALSE(parts.turns->RetireEnded());  // not while the step is open
  parts.steps->AbandonIfUnwanted();
  EXPECT_FALSE(active->in_step());
  EXPECT_EQ(active->session->computed(), 0);
  EXPECT_TRUE(parts.turns->RetireEnded());
  EXPECT_OK(parts.memory->CheckIntegrity(*parts.table));
}

TEST(StepRunnerTest, NothingToRunIsSaid) {
  TurnParts parts;
  parts.Begin();
  EXPECT_FALSE(parts.steps->Plan());
  EXPECT_FALSE(parts.steps->Run(kNever));
}

// Two prompts of which memory holds only one: the planner prefers the shorter, which may not take
// memory from the earlier one. Everything is computed all the same.
TEST(StepRunnerTest, TheFirstLaneAlwaysGoesOn) {
  EngineOptions options = SmallEngine();
  options.max_step_tokens = 32;
  TurnParts probe(options);
  options.memory_bytes = probe.memory->MinBytes(320);
  TurnParts parts(options);
  parts.Submit(Greedy(RandomTokens(300, 1), 20));
  for (int i = 0; i < 3; ++i) parts.Step();
  parts.Submit(Greedy(RandomTokens(190, 2), 40));
  parts.RunAll();
  EXPECT_TRUE(parts.turns->idle());
  EngineStats stats;
  parts.turns->FillStats(&stats);
  EXPECT_EQ(stats.turns_finished, 2);
  EXPECT_GT(parts.room->preemptions(), 0);
}

// Three choices whose prompt fills the memory: the first finds no room for another token and ends
// the turn, after it has taken the others' pages. Those must not be computed with the newcomer.
TEST(StepRoomTest, ChoicesOfATurnThatHasEndedTakeNoPartInTheStep) {
  EngineOptions options = SmallEngine();
  TurnParts probe(options);
  options.memory_bytes = probe.memory->MinBytes(128);
  TurnParts parts(options);
  TurnOptions three = Greedy(RandomTokens(128, 1), 7);
  three.n_choices = 3;
  const SubmittedTurn first = parts.Submit(three);
  while (parts.Find(first)->stage != TurnStage::kWriting) ASSERT_TRUE(parts.Step());
  const SubmittedTurn last = parts.Submit(Greedy(RandomTokens(10, 2), 3));
  parts.Step();
  EXPECT_EQ(parts.Find(first), nullptr);
  while (parts.Find(last) != nullptr && parts.Find(last)->lanes[0]->generated.empty()) {
    ASSERT_TRUE(parts.Step());
  }
  ASSERT_NE(parts.Find(last), nullptr) << "it was ended by the step of the others";
  EXPECT_EQ(parts.Find(last)->session->computed(), 10);
  EXPECT_OK(parts.memory->CheckIntegrity(*parts.table));
}

TEST(StepRoomTest, TakesMemoryFromTheLastAndGivesItBackWhenThereIsRoom) {
  EngineOptions options = SmallEngine();
  TurnParts probe(options);
  options.memory_bytes = probe.memory->MinBytes(200);
  TurnParts parts(options);
  const SubmittedTurn first = parts.Submit(Greedy(RandomTokens(20, 1), 100));
  const SubmittedTurn last = parts.Submit(Greedy(RandomTokens(90, 2), 100));
  parts.Begin();
  Lane* const early = parts.Find(first)->lanes[0].get();
  Lane* const late = parts.Find(last)->lanes[0].get();
  std::vector<StepPart> parts_of_late = {
      {.turn = parts.Find(last), .lane = late, .rows = 90, .ends_prompt = true}};
  parts.room->Prepare(&parts_of_late);
  ASSERT_EQ(parts_of_late.size(), 1u);
  parts.memory->Commit(late->session);
  early->session->tokens = RandomTokens(180, 3);
  std::vector<StepPart> parts_of_early = {
      {.turn = parts.Find(first), .lane = early, .rows = 180, .ends_prompt = true}};
  parts.room->Prepare(&parts_of_early);
  ASSERT_EQ(parts_of_early.size(), 1u);
  EXPECT_EQ(parts_of_early[0].rows, 180);
  EXPECT_EQ(late->stage, LaneStage::kPreempted);
  EXPECT_EQ(parts.memory->BytesOf(*late->session), 0);
  parts.memory->Commit(early->session);
  EXPECT_FALSE(parts.room->ResumePreempted(/*nobody_runs=*/false));
  parts.memory->Drop(early->session);
  EXPECT_TRUE(parts.room->ResumePreempted(/*nobody_runs=*/false));
  EXPECT_EQ(late->stage, LaneStage::kReady);
}

TEST(TurnWriterTest, AFailurePoisonsFromTheStepOn) {
  TurnParts parts;
  Session* const session = parts.Named("a");
  parts.Fill(session, 32);
  const auto turn = parts.turns->Submit(session, Greedy(RandomTokens(20, 2), 4), false);
  ASSERT_TRUE(turn.ok()) << turn.status();
  parts.Begin();
  ActiveTurn* const active = parts.Find(*turn);
  const StepPart part{.turn = active, .lane = active->lanes[0].get(), .rows = 20, .first_row = 32};
  parts.writer->Fail(part, Internal("broken"));
  EXPECT_EQ(session->stage, SessionStage::kPoisoned);
  EXPECT_EQ(session->sound_tokens, 32);
  EXPECT_EQ(active->fate, TurnFate::kFailed);
  parts.Sweep();
  EXPECT_EQ(session->stage, SessionStage::kPoisoned);
  EXPECT_FALSE(session->has_turn);
}

TEST(TurnWriterTest, LogitsThatAreNotFiniteAreAFailure) {
  TurnParts parts;
  const SubmittedTurn turn = parts.Submit(Greedy(RandomTokens(8, 2), 4));
  parts.Begin();
  ActiveTurn* const active = parts.Find(turn);
  std::vector<StepPart> planned = {{.turn = active,
                                    .lane = active->lanes[0].get(),
                                    .rows = 8,
                                    .n_logits = 1,
                                    .ends_prompt = true}};
  parts.room->Prepare(&planned);
  std::vector<float> logits(static_cast<size_t>(parts.model->n_vocab()), NAN);
  planned[0].logits = logits;
  parts.writer->Take(&planned[0]);
  EXPECT_EQ(active->session->stage, SessionStage::kPoisoned);
  EXPECT_TRUE(active->has_ended());
  EngineStats stats;
  parts.writer->FillStats(&stats);
  EXPECT_EQ(stats.generated_tokens, 0);
}

TEST(TurnWriterTest, ChoicesForkWhereThePromptEnds) {
  TurnParts parts;
  TurnOptions options = Greedy(RandomTokens(8, 2), 4);
  options.n_choices = 3;
  const SubmittedTurn turn = parts.Submit(options);
  ActiveTurn* active = nullptr;
  do {
    parts.Step();
    active = parts.Find(turn);
  } while (active->stage == TurnStage::kReading);
  ASSERT_EQ(active->lanes.size(), 3u);
  for (const auto& lane : active->lanes) {
    EXPECT_EQ(lane->session->stage, SessionStage::kRunning);
    EXPECT_EQ(lane->session->tokens, active->session->tokens);
  }
  EXPECT_EQ(active->lanes[1]->session->role, SessionRole::kOfTurn);
  parts.RunAll();
  EXPECT_EQ(parts.table->size(), 0);
}

}  // namespace
}  // namespace weft
