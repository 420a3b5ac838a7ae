#include "engine/sessions/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace weft {
namespace {

using ::testing::HasSubstr;

SessionId Create(SessionTable* table, std::string_view domain, std::string_view name) {
  const auto session = table->Create(domain, name);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? (*session)->id : SessionId{};
}

TEST(SessionTableTest, NamesAreUniqueWithinADomain) {
  SessionTable table(1, 10);
  const SessionId kitchen = Create(&table, "a", "kitchen");
  EXPECT_EQ(table.Create("a", "kitchen").status().code(), StatusCode::kAlreadyExists);
  const SessionId other = Create(&table, "b", "kitchen");
  EXPECT_EQ(table.FindByName("a", "kitchen")->id, kitchen);
  EXPECT_EQ(table.FindByName("b", "kitchen")->id, other);
  EXPECT_EQ(table.FindByName("c", "kitchen"), nullptr);
  EXPECT_EQ(table.size(), 2);
}

TEST(SessionTableTest, AnonymousSessionsAreManyAndFoundByNoName) {
  SessionTable table(1, 10);
  EXPECT_FALSE(Create(&table, "", "") == Create(&table, "", ""));
  EXPECT_EQ(table.FindByName("", ""), nullptr);
}

TEST(SessionTableTest, AHandleOfARemovedSessionFindsNothingEvenWhenItsPlaceIsReused) {
  SessionTable table(1, 1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const SessionId id = Create(&table, "", "name");
    EXPECT_TRUE(seen.insert(id.value).second) << "a handle was given out twice";
    table.Remove(table.Find(id));
    EXPECT_EQ(table.Find(id), nullptr);
    EXPECT_EQ(table.Get(id).status().code(), StatusCode::kNotFound);
  }
  Create(&table, "", "name");
  for (const uint64_t value : seen) EXPECT_EQ(table.Find({value}), nullptr);
}

TEST(SessionTableTest, HandlesOfOtherTablesAndMadeUpOnesAreRefused) {
  SessionTable mine(1, 10), other(2, 10);
  const SessionId id = Create(&other, "", "x");
  Create(&mine, "", "x");
  EXPECT_EQ(mine.Find(id), nullptr);
  const Status foreign = mine.Get(id).status();
  EXPECT_EQ(foreign.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(foreign)), HasSubstr("another engine"));
  for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 48, uint64_t{1} << 24}) {
    EXPECT_FALSE(mine.Get({value}).ok()) << value;
  }
}

TEST(SessionTableTest, ThereAreNoMoreSessionsThanAllowed) {
  SessionTable table(1, 2);
  const SessionId first = Create(&table, "", "");
  Create(&table, "", "");
  EXPECT_EQ(table.Create("", "").status().code(), StatusCode::kResourceExhausted);
  table.Remove(table.Find(first));
  EXPECT_TRUE(table.Create("", "").ok());
}

TEST(SessionTableTest, ADomainHasItsShareAndIsNotToldOfOthers) {
  SessionTable table(1, 4, /*max_per_domain=*/2);
  const SessionId first = Create(&table, "a", "1");
  Create(&table, "a", "2");
  const Status own = table.Create("a", "3").status();
  EXPECT_EQ(own.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(own)), HasSubstr("already 2 sessions"));
  Create(&table, "b", "1");
  Create(&table, "c", "1");
  const Status all = table.Create("b", "2").status();
  EXPECT_EQ(all.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(all)), Not(HasSubstr("4")));
  table.Remove(table.Find(first));
  EXPECT_TRUE(table.Create("a", "3").ok());
}

TEST(SessionTableTest, SessionsOfATurnNeitherTakeAPlaceNorNeedOne) {
  SessionTable table(1, 1);
  const auto of_turn = table.CreateForTurn("d");
  ASSERT_TRUE(of_turn.ok());
  Create(&table, "", "s");
  EXPECT_EQ(table.Create("", "").status().code(), StatusCode::kResourceExhausted);
  const auto another = table.CreateForTurn("d");
  ASSERT_TRUE(another.ok());
  EXPECT_NE((*another)->id, (*of_turn)->id);
  table.Remove(*of_turn);
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(table.Create("", "").status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.CreateForTurn(std::string(129, 'd')).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(SessionTableTest, RenameFreesTheOldNameAndTakesTheNewOne) {
  SessionTable table(1, 10);
  Session* const session = table.Find(Create(&table, "d", "old"));
  Create(&table, "d", "taken");
  EXPECT_EQ(table.Rename(session, "taken").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(session->name, "old");
  EXPECT_TRUE(table.Rename(session, "old").ok());
  EXPECT_TRUE(table.Rename(session, "new").ok());
  EXPECT_EQ(table.FindByName("d", "old"), nullptr);
  EXPECT_EQ(table.FindByName("d", "new"), session);
  EXPECT_TRUE(table.Rename(session, "").ok());
  EXPECT_EQ(table.FindByName("d", "new"), nullptr);
  EXPECT_TRUE(table.Create("d", "new").ok());
}

TEST(SessionTableTest, NamesThatCannotBeShownOrStoredAreRefused) {
  SessionTable table(1, 10);
  EXPECT_TRUE(table.Create("", std::string(128, 'x')).ok());
  EXPECT_EQ(table.Create("", std::string(129, 'x')).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Create("", "two\nlines").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Create("", "del\x7f").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Create("", std::string_view("a\0b", 3)).status().code(),
            StatusCode::kInvalidArgument);
  // A domain becomes a directory name, with the same limits.
  EXPECT_EQ(table.Create(std::string(129, 'd'), "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.size(), 1);
}

TEST(SessionTableTest, ForEachVisitsEverySessionOnce) {
  SessionTable table(1, 10);
  const SessionId a = Create(&table, "", "a"), b = Create(&table, "", "b"),
                  c = Create(&table, "", "c");
  table.Remove(table.Find(b));
  std::set<uint64_t> seen;
  table.ForEach([&](Session* session) { EXPECT_TRUE(seen.insert(session->id.value).second); });
  EXPECT_EQ(seen, (std::set<uint64_t>{a.value, c.value}));
}

}  // namespace
}  // namespace weft
