#include "engine/storage/live_sessions.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

EngineOptions With(const TestFolder& folder) {
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  return options;
}

// A session of 20 tokens whose state is in its file alone.
Session* ParkedSession(SessionParts* parts) {
  Session* const session = parts->Named("a");
  parts->Fill(session, 20);
  EXPECT_OK(parts->Ask([&](const auto& reply) { parts->files->Park(session->id, reply); }));
  return session;
}

TEST(LiveSessionsTest, AForkSharesAndGoingBackDoesNotReachIt) {
  SessionParts parts;
  Session* const from = parts.Named("a");
  parts.Fill(from, 40);
  SessionId id;
  parts.sessions->Fork(from->id, 32, {.name = "b"}, [&](const auto& fork) { id = *fork; });
  Session* const fork = parts.sessions->Find(id);
  ASSERT_NE(fork, nullptr);
  EXPECT_EQ(fork->computed(), 32);
  EXPECT_EQ(parts.memory->SharingOf(*fork).sessions, 1);
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.sessions->Truncate(from->id, 8, reply); }));
  EXPECT_EQ(std::ssize(from->tokens), 8);
  EXPECT_EQ(std::ssize(fork->tokens), 32);
  EXPECT_OK(parts.memory->CheckIntegrity(*parts.table));
}

TEST(LiveSessionsTest, APoisonedSessionIsForkedWhereItIsSoundAndHealedByReset) {
  SessionParts parts;
  Session* const session = parts.Named("a");
  parts.Fill(session, 20);
  session->sound_tokens = 12;
  session->stage.Become(SessionStage::kRunning);
  session->stage.Become(SessionStage::kPoisoned);
  EXPECT_THAT(
      parts.Ask([&](const auto& reply) { parts.sessions->Truncate(session->id, 4, reply); }),
      IsError(StatusCode::kFailedPrecondition, "poisoned"));
  parts.sessions->Fork(session->id, 13, {}, [](const auto& fork) {
    EXPECT_THAT(fork.status(), IsError(StatusCode::kOutOfRange, "sound up to 12"));
  });
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.sessions->Reset(session->id, reply); }));
  EXPECT_EQ(session->stage, SessionStage::kReady);
  EXPECT_TRUE(session->tokens.empty());
}

TEST(LiveSessionsTest, ResetReachesTheFile) {
  TestFolder folder;
  SessionParts parts(With(folder));
  Session* const session = ParkedSession(&parts);
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.sessions->Reset(session->id, reply); }));
  EXPECT_EQ(session->stage, SessionStage::kReady);
  EXPECT_EQ(session->on_disk, OnDisk::kSaved);
  EXPECT_OK(parts.Ask([&](const auto& reply) { parts.files->Park(session->id, reply); }));
  EXPECT_EQ(session->n_tokens(), 0);
}

// Neither can be written or removed: where its file was is a folder.
TEST(LiveSessionsTest, ATurnThatArrivesDuringAFailedResetIsNotForgotten) {
  TestFolder folder;
  SessionParts parts(With(folder));
  Session* const session = ParkedSession(&parts);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file() && entry.path().extension() == ".session") {
      files.push_back(entry.path());
    }
  }
  ASSERT_EQ(files.size(), 1u);
  std::filesystem::remove(files[0]);
  std::filesystem::create_directories(files[0] / "in_the_way");

  std::optional<Status> answer;
  parts.sessions->Reset(session->id, [&](const Status& status) { answer = status; });
  session->has_turn = true;
  session->stage.Become(SessionStage::kAwaited);
  EXPECT_TRUE(parts.RunUntil([&] { return answer.has_value() && !session->restore_error.ok(); }));
  EXPECT_FALSE(answer->ok());
  EXPECT_EQ(session->stage, SessionStage::kAwaited);
}

TEST(LiveSessionsTest, ASavedSessionIsFoundAgainUnlessForgotten) {
  TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  SessionParts parts(options);
  for (const bool forget : {false, true}) {
    Session* const session = parts.Named("a");
    parts.Fill(session, 20);
    EXPECT_OK(parts.Ask([&](const auto& reply) { parts.files->Save(session->id, reply); }));
    const SessionId id = session->id;
    EXPECT_OK(parts.Ask([&](const auto& reply) { parts.sessions->Close(session, forget, reply); }));
    EXPECT_EQ(parts.sessions->Find(id), nullptr);
    Session* const listed = parts.sessions->FindByName("", "a");
    ASSERT_EQ(listed == nullptr, forget);
    if (forget) continue;
    EXPECT_EQ(listed->stage, SessionStage::kParked);
    EXPECT_EQ(listed->n_tokens(), 20);
    EXPECT_OK(parts.Ask([&](const auto& reply) { parts.sessions->Close(listed, true, reply); }));
  }
  EXPECT_FALSE(parts.files->FileWorkPending());
}

TEST(LiveSessionsTest, OnlyWhatNobodyReliesOnIsClosedForANewcomer) {
  SessionParts parts;
  Session* const older = parts.Named("a");
  Session* const newer = parts.Named("b");
  parts.Fill(older, 4);
  parts.Fill(newer, 4);
  const SessionId oldest = older->id;
  EXPECT_FALSE(parts.sessions->CloseOldestOf("elsewhere"));
  EXPECT_TRUE(parts.sessions->CloseOldestOf(""));
  EXPECT_EQ(parts.sessions->Find(oldest), nullptr);
  EXPECT_NE(parts.sessions->FindByName("", "b"), nullptr);
}

}  // namespace
}  // namespace weft
