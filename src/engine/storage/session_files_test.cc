#include "engine/storage/session_files.h"

#include <gtest/gtest.h>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

EngineOptions WithFolder(const TestFolder& folder) {
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  return options;
}

TEST(SessionFilesTest, ParkedSessionsComeBackWithTheirState) {
  TestFolder folder;
  SessionParts parts(WithFolder(folder));
  Session* const session = parts.Named("a");
  parts.Fill(session, 40);
  const std::vector<TokenId> tokens = session->tokens;
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.files->Park(session->id, reply); }));
  EXPECT_EQ(session->stage, SessionStage::kParked);
  EXPECT_EQ(session->on_disk, OnDisk::kSaved);
  EXPECT_EQ(parts.memory->BytesOf(*session), 0);
  EXPECT_EQ(session->n_tokens(), 40);
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.files->Restore(session->id, reply); }));
  EXPECT_EQ(session->stage, SessionStage::kReady);
  EXPECT_EQ(session->tokens, tokens);
  EXPECT_EQ(session->computed(), 40);
  EXPECT_FALSE(parts.files->FileWorkPending());
}

TEST(SessionFilesTest, ATurnThatArrivesWhileItIsParkedBringsItBack) {
  TestFolder folder;
  SessionParts parts(WithFolder(folder));
  Session* const session = parts.Named("a");
  parts.Fill(session, 20);
  bool parked = false;
  parts.files->Park(session->id, [&](const Status& status) { parked = status.ok(); });
  EXPECT_EQ(session->file_work.kind(), FileWork::kSaving);
  session->has_turn = true;
  session->stage.Become(SessionStage::kQueued);
  EXPECT_TRUE(parts.RunUntil([&] { return parked; }));
  EXPECT_EQ(session->stage, SessionStage::kAwaited);
  EXPECT_EQ(session->file_work.kind(), FileWork::kRestoring);
  EXPECT_TRUE(parts.RunUntil([&] { return !session->is_at_work(); }));
  EXPECT_EQ(session->stage, SessionStage::kQueued);
  EXPECT_EQ(std::ssize(session->tokens), 20);
}

TEST(SessionFilesTest, AFileThatIsGoneFailsTheTurnThatWaits) {
  TestFolder folder;
  SessionParts parts(WithFolder(folder));
  Session* const session = parts.Named("a");
  parts.Fill(session, 20);
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.files->Park(session->id, reply); }));
  std::filesystem::remove_all(folder.path());
  session->has_turn = true;
  session->stage.Become(SessionStage::kAwaited);
  parts.files->RestoreForTurn(session);
  EXPECT_TRUE(parts.RunUntil([&] { return !session->restore_error.ok(); }));
  EXPECT_EQ(session->stage, SessionStage::kAwaited);
}

TEST(SessionFilesTest, CallsWaitUntilTheFileIsFree) {
  TestFolder folder;
  SessionParts parts(WithFolder(folder));
  Session* const session = parts.Named("a");
  parts.Fill(session, 20);
  bool saved = false, called = false;
  parts.files->Save(session->id, [&](const Status& status) { saved = status.ok(); });
  parts.files->WhenFree(session->id, false, [&](const StatusOr<Session*>& free) {
    EXPECT_TRUE(saved);
    called = free.ok();
  });
  EXPECT_FALSE(called);
  EXPECT_TRUE(parts.RunUntil([&] { return called; }));
}

TEST(SessionFilesTest, MemoryIsTakenFromTheLeastRecentlyUsed) {
  SessionParts parts;  // without files: the tokens stay
  Session* const first = parts.Named("a");
  Session* const second = parts.Named("b");
  parts.Fill(first, 20);
  parts.Fill(second, 20);
  EXPECT_TRUE(parts.files->GiveUpIdleState());
  EXPECT_EQ(parts.memory->BytesOf(*first), 0);
  EXPECT_EQ(std::ssize(first->tokens), 20);
  EXPECT_GT(parts.memory->BytesOf(*second), 0);
  EXPECT_TRUE(parts.files->GiveUpIdleState());
  EXPECT_FALSE(parts.files->GiveUpIdleState());
  EngineStats stats;
  parts.files->FillStats(&stats);
  EXPECT_EQ(stats.sessions_dropped, 2);
}

TEST(SessionFilesTest, WithoutADirectoryNothingIsSaved) {
  SessionParts parts;
  Session* const session = parts.Named("a");
  EXPECT_THAT(parts.Ask([&](const auto& reply) { parts.files->Save(session->id, reply); }),
              IsError(StatusCode::kFailedPrecondition, "--state-dir"));
  EXPECT_FALSE(parts.files->HasFile(*session));
}

}  // namespace
}  // namespace weft
