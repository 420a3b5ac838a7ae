// The last minutes of the load: what is kept, what a key sees of it, and where its turns wait.
#include "doors/api/server/load_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

LoadSample Numbered(int64_t n) {
  return {.turns = {.running = n, .waiting = 2 * n},
          .by_domain = {{"key a", {.running = 1, .waiting = n}}},
          .pages_used = 3 * n};
}

TEST(LoadHistoryTest, KeepsTheLastSamplesAndTellsThoseAfterANumber) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto most = static_cast<size_t>(1 + random() % 8);
    const auto added = static_cast<int64_t>(random() % 20);
    LoadHistory history(most);
    for (int64_t n = 0; n < added; ++n) history.Add(Numbered(n));
    const int64_t kept_from = std::max<int64_t>(0, added - static_cast<int64_t>(most));
    const auto after = static_cast<int64_t>(random() % 24);
    const Json told = history.Tell(after, nullptr);
    // A number that is not there yet is another server's.
    const int64_t first = after > added ? kept_from : std::max(after, kept_from);
    ASSERT_EQ(told["first"], first);
    ASSERT_EQ(told["next"], added);
    Json running = Json::array(), pages = Json::array();
    for (int64_t n = first; n < added; ++n) {
      running.push_back(n);
      pages.push_back(3 * n);
    }
    ASSERT_EQ(told["running"], running);
    ASSERT_EQ(told["pages_used"], pages);
    ASSERT_EQ(told["steps"].size(), running.size());
  }
}

TEST(LoadHistoryTest, TellsAKeyItsOwnTurnsAndNothingOfTheEngine) {
  LoadHistory history(4);
  history.Add(Numbered(5));
  const std::string own = "key a", other = "key b";
  const Json told = history.Tell(0, &own);
  EXPECT_EQ(told["running"], Json::array({1}));
  EXPECT_EQ(told["waiting"], Json::array({5}));
  EXPECT_FALSE(told.contains("pages_used"));
  EXPECT_FALSE(told.contains("generated_tokens"));
  EXPECT_EQ(history.Tell(0, &other)["waiting"], Json::array({0}));
}

TEST(LoadHistoryTest, ASampleHasWhatHappenedSinceTheOneBefore) {
  EngineStats before, now;
  before.generated_tokens = 100;
  before.steps = 7;
  now.generated_tokens = 130;
  now.steps = 9;
  now.turns_running = 2;
  now.turns_queued = 1;
  now.sessions_ready = 4;
  using Stage = TurnInfo::Stage;
  std::vector<TurnInfo> turns(3);
  turns[0].domain = turns[1].domain = "a";
  turns[2].domain = "b";
  turns[0].stage = Stage::kWriting;
  turns[1].stage = Stage::kQueued;
  turns[2].stage = Stage::kWaiting;  // admitted, and waits for other prompts
  const LoadSample sample = SampleOf(now, before, turns);
  EXPECT_EQ(sample.generated_tokens, 30);
  EXPECT_EQ(sample.steps, 2);
  EXPECT_EQ(sample.idle_sessions, 4);
  EXPECT_EQ(sample.turns.running, 2);
  EXPECT_EQ(sample.by_domain.at("a").running, 1);
  EXPECT_EQ(sample.by_domain.at("a").waiting, 1);
  EXPECT_EQ(sample.by_domain.at("b").running, 1);
}

TEST(LoadHistoryTest, TheQueueTellsAKeyWhereItsOwnTurnsWait) {
  using Stage = TurnInfo::Stage;
  std::vector<TurnInfo> turns(5);
  for (TurnInfo& turn : turns) turn.domain = "a";
  turns[0].session_name = "runs";
  turns[0].stage = Stage::kWriting;
  turns[1].session_name = turns[3].session_name = "same";
  turns[3].domain = "b";
  turns[4].domain = "b";  // without a session
  const Json queue = QueueOf(turns, "b");
  EXPECT_EQ(queue["length"], 4);
  EXPECT_EQ(queue["own"], Json::array({{{"session_id", "same"}, {"place", 3}}}));
  EXPECT_EQ(QueueOf(turns, "a")["own"].size(), 1u);
  EXPECT_EQ(QueueOf({}, "a")["length"], 0);
}

class LoadHistoryRouteTest : public testing::ApiTest {};

TEST_F(LoadHistoryRouteTest, FillsByItselfAndTellsOperatorsMore) {
  Router router;
  RegisterLoadHistory(router, host());
  const auto ask = [&](bool is_operators) {
    HttpRequest request{.method = "GET", .path = "/load/history"};
    request.is_operators = is_operators;
    testing::MemoryResponder responder;
    testing::RunHandler(*router.Find("GET", {"load", "history"}).route, request, responder);
    return responder.json();
  };
  Json told;
  do {
    std::this_thread::yield();
    told = ask(true);
  } while (told["next"] == 0);
  EXPECT_EQ(told["first"], 0);
  EXPECT_EQ(told["running"].size(), told["idle"].size());
  EXPECT_EQ(told["queue"]["length"], 0);
  EXPECT_FALSE(ask(false).contains("idle"));
}

TEST_F(LoadHistoryRouteTest, RefusesWhatIsNoNumber) {
  Router router;
  RegisterLoadHistory(router, host());
  for (const char* after : {"-1", "x", "", "1e3"}) {
    HttpRequest request{.method = "GET", .path = "/load/history", .query = {{"after", after}}};
    testing::MemoryResponder responder;
    testing::RunHandler(*router.Find("GET", {"load", "history"}).route, request, responder);
    EXPECT_EQ(responder.status(), 400) << after;
    EXPECT_EQ(responder.json()["error"]["param"], "after");
  }
}

}  // namespace
}  // namespace weft::serve
