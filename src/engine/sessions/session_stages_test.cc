#include "engine/sessions/session_stages.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(StagedTest, MovesAlongItsTable) {
  Staged<SessionStage> stage(SessionStage::kReady);
  stage.Become(SessionStage::kQueued);
  stage.Become(SessionStage::kRunning);
  stage.Become(SessionStage::kInStep);
  EXPECT_TRUE(stage.IsAnyOf(SessionStage::kRunning, SessionStage::kInStep));
  EXPECT_FALSE(stage.IsAnyOf(SessionStage::kReady, SessionStage::kPoisoned));
}

TEST(StagedTest, AnythingElseIsABug) {
  Staged<SessionStage> parked(SessionStage::kParked);
  EXPECT_DEATH(parked.Become(SessionStage::kRunning),
               "a parked session cannot become a running session");
  Staged<SessionStage> ready(SessionStage::kReady);
  EXPECT_DEATH(ready.Become(SessionStage::kReady), "cannot become");
  Staged<FileWork> work(FileWork::kSaving);
  EXPECT_DEATH(work.Become(FileWork::kLoading), "saving cannot become loading");
}

TEST(SessionStagesTest, NothingChangesWithinAStepButItsEnd) {
  EXPECT_EQ(After(SessionStage::kInStep), AnyOf(SessionStage::kRunning));
}

TEST(SessionStagesTest, OnlyARunningSessionIsPoisonedAndOnlyAResetHeals) {
  for (uint32_t i = 0; i <= static_cast<uint32_t>(SessionStage::kPoisoned); ++i) {
    const auto stage = static_cast<SessionStage>(i);
    EXPECT_EQ((After(stage) & AnyOf(SessionStage::kPoisoned)) != 0, stage == SessionStage::kRunning)
        << NameOf(stage);
  }
  EXPECT_EQ(After(SessionStage::kPoisoned), AnyOf(SessionStage::kReady));
}

TEST(SessionStagesTest, CallersSeeWhetherATurnIsThere) {
  EXPECT_EQ(PublicState(SessionStage::kQueued), SessionState::kRunning);
  EXPECT_EQ(PublicState(SessionStage::kInStep), SessionState::kRunning);
  EXPECT_EQ(PublicState(SessionStage::kAwaited), SessionState::kParked);
}

}  // namespace
}  // namespace weft
