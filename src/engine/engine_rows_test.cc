// Prompts with input embeddings ("rows"): the same answers as with the tokens, and kept like
// tokens wherever a session goes.
#include <bit>
#include <cmath>
#include <limits>

#include "engine/engine_test_util.h"
#include "engine/state/history.h"

namespace weft {
namespace {

using Parts = std::vector<PromptPart>;

class EngineRowsTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
  static std::unique_ptr<Engine> Start(const EngineOptions& options = SmallEngine()) {
    return StartEngine(options, model());
  }
  // Whether rows of the model's own stand for the tokens, which they do not where the test's
  // recurrent state tells them apart.
  static bool stand_for_tokens() { return std::string_view(GetParam()).find("rec") != 0; }

  static std::vector<float> RowsOf(const std::vector<int32_t>& tokens) {
    const auto rows = model()->RowsOf(tokens);
    EXPECT_OK(rows);
    return rows.ok() ? *rows : std::vector<float>();
  }
  static TurnOptions GreedyParts(Parts parts, int64_t max_tokens) {
    TurnOptions turn = Greedy({}, max_tokens);
    turn.parts = std::make_shared<const Parts>(std::move(parts));
    return turn;
  }
  // The tokens, with those from `from` to `to` as rows.
  static TurnOptions Mixed(const std::vector<int32_t>& tokens, int64_t from, int64_t to,
                           int64_t max_tokens) {
    const auto at = [&](int64_t i) { return tokens.begin() + i; };
    return GreedyParts({{.tokens = {at(0), at(from)}, .rows = RowsOf({at(from), at(to)})},
                        {.tokens = {at(to), tokens.end()}}},
                       max_tokens);
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineRowsTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama"), kNameOfModel);

// How a program sends a prompt of parts: here what the model itself has for some of the tokens, in
// place of a picture or a voice.
TEST_P(EngineRowsTest, APromptOfPartsIsAnsweredAsItsTokens) {
  if (!stand_for_tokens()) return;
  const std::vector<int32_t> before = RandomTokens(20, 1), behind = RandomTokens(9, 2);
  const std::vector<int32_t> shown = RandomTokens(40, 3);
  auto engine = Engine::Start(model(), SmallEngine());
  ASSERT_TRUE(engine.ok()) << engine.status();

  TurnOptions turn = Greedy(before, 12);
  turn.parts =
      std::make_shared<const Parts>(Parts{{.rows = *model()->RowsOf(shown)}, {.tokens = behind}});
  const auto mixed = (*engine)->SubmitOnce("", turn);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  const TurnOutcome said = Collect(mixed->get());

  std::vector<int32_t> tokens = before;
  tokens.insert(tokens.end(), shown.begin(), shown.end());
  tokens.insert(tokens.end(), behind.begin(), behind.end());
  const TurnOptions plain = Greedy(tokens, 12);
  ExpectSameAnswer(said, RunAlone(model(), SmallEngine(), {&plain, 1})[0]);
  EXPECT_EQ(said.done().usage.prompt_tokens, 69);
  EXPECT_OK((*engine)->CheckIntegrity());
}

TEST_P(EngineRowsTest, TheSameBitsInAnyChunksAndBesideOthers) {
  const std::vector<int32_t> tokens = RandomTokens(90, 4);
  TurnOptions turn = Mixed(tokens, 10, 70, 20);
  turn.top_logprobs = 2;
  auto alone = Start();
  const TurnOutcome expected = RunTurn(alone.get(), NewSession(alone.get()), turn);
  auto engine = Start();
  const auto other =
      SubmitTurn(engine.get(), NewSession(engine.get()), Mixed(RandomTokens(80, 5), 0, 80, 30));
  turn.prompt_chunks = {7, 1, 30};
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get(), "", "d"), turn), expected);
  EXPECT_OK(Collect(other.get()).done().status);
}

TEST_P(EngineRowsTest, EqualRowsAreFoundAgainAndRowsThatDifferInABitAreNot) {
  auto engine = Start();
  const std::vector<int32_t> tokens = RandomTokens(100, 6);
  const TurnOptions first = Mixed(tokens, 30, 60, 4);
  const TurnOutcome said = RunTurn(engine.get(), NewSession(engine.get()), first);
  EXPECT_EQ(said.started->cached_tokens, 0);
  const TurnOutcome again = RunTurn(engine.get(), NewSession(engine.get()), first);
  EXPECT_GE(again.started->cached_tokens, 96);
  EXPECT_EQ(again.tokens(), said.tokens());

  Parts other = *first.parts;
  float& value = other[0].rows[20 * static_cast<size_t>(model()->row_width())];
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1);
  const TurnOutcome differs =
      RunTurn(engine.get(), NewSession(engine.get()), GreedyParts(other, 4));
  EXPECT_LE(differs.started->cached_tokens, 50) << "up to the row that differs";
  if (stand_for_tokens()) {
    EXPECT_EQ(differs.started->cached_tokens, 50);
  }
  // And no token is taken for the row that stands for it.
  const TurnOutcome as_tokens = RunTurn(engine.get(), NewSession(engine.get()), Greedy(tokens, 4));
  EXPECT_LE(as_tokens.started->cached_tokens, 30);
  const TurnOutcome elsewhere = RunTurn(engine.get(), NewSession(engine.get(), "", "d"), first);
  EXPECT_EQ(elsewhere.started->cached_tokens, 0) << "another domain finds nothing";
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRowsTest, RowsTakeMemoryUntilNobodyHoldsThem) {
  auto engine = Start();
  const TurnOptions turn = Mixed(RandomTokens(40, 7), 5, 25, 4);
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, turn);
  const int64_t bytes = engine->Stats().row_bytes;
  EXPECT_GE(bytes, 20 * model()->row_width() * 4);
  const auto fork = engine->Fork(session, -1, {});
  EXPECT_OK(fork);
  EXPECT_EQ(engine->Stats().row_bytes, bytes) << "each is there once";
  EXPECT_OK(engine->Close(session, true));
  EXPECT_OK(engine->Close(*fork, true));
  EXPECT_OK(engine->DropPrefixes());
  EXPECT_EQ(engine->Stats().row_bytes, 0);
}

TEST_P(EngineRowsTest, ForksAndUndoKeepWhatIsBeforeThem) {
  const std::vector<int32_t> tokens = RandomTokens(60, 8), more = RandomTokens(10, 9);
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, Mixed(tokens, 20, 50, 5));
  std::vector<int32_t> as_seen = tokens;
  std::fill(as_seen.begin() + 20, as_seen.begin() + 50, kRowToken);
  const std::vector<int32_t> all = TokensOf(engine.get(), session);
  ASSERT_GE(all.size(), 60u);
  EXPECT_TRUE(std::equal(as_seen.begin(), as_seen.end(), all.begin()));

  const auto fork = engine->Fork(session, 40, {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  const TurnOutcome by_fork = RunTurn(engine.get(), *fork, Greedy(more, 8));
  EXPECT_OK(engine->Truncate(session, 40));
  const TurnOutcome by_undo = RunTurn(engine.get(), session, Greedy(more, 8));
  auto fresh = Start();
  TurnOptions plain = Mixed({tokens.begin(), tokens.begin() + 40}, 20, 40, 8);
  Parts parts = *plain.parts;
  parts.push_back({.tokens = more});
  const TurnOutcome expected = RunTurn(fresh.get(), NewSession(fresh.get()), GreedyParts(parts, 8));
  EXPECT_EQ(by_fork.tokens(), expected.tokens());
  EXPECT_EQ(by_undo.tokens(), expected.tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRowsTest, AWholeContextKeepsWhatItSharesWithTheSession) {
  const std::vector<int32_t> tokens = RandomTokens(70, 10);
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  TurnOptions turn = Mixed(tokens, 10, 60, 4);
  RunTurn(engine.get(), session, turn);
  turn.tokens_are_whole_context = true;
  const TurnOutcome again = RunTurn(engine.get(), session, turn);
  EXPECT_EQ(again.started->prompt_tokens, 70);
  EXPECT_GE(again.started->cached_tokens, 64);
  // A turn that is cancelled before its prompt is read leaves the session as it was.
  const std::vector<int32_t> before = TokensOf(engine.get(), session);
  TurnOptions unread = Mixed(RandomTokens(60, 11), 0, 60, 4);
  unread.tokens_are_whole_context = true;
  unread.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(RunTurn(engine.get(), session, unread).done().reason, FinishReason::kError);
  EXPECT_EQ(TokensOf(engine.get(), session), before);
  EXPECT_EQ(RunTurn(engine.get(), session, turn).tokens(), again.tokens());
}

TEST_P(EngineRowsTest, ParkedSessionsAndThoseOfAnEarlierProcessHaveTheirRows) {
  const TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  options.state_disk_bytes = int64_t{1} << 28;
  const std::vector<TurnOptions> turns = {Mixed(RandomTokens(80, 12), 33, 66, 10),
                                          Greedy(RandomTokens(8, 13), 10)};
  const std::vector<TurnOutcome> alone = RunAlone(model(), SmallEngine(), turns);
  for (const bool parks : {true, false}) {
    const std::string name = parks ? "parked" : "kept";
    {
      auto engine = Start(options);
      const SessionId session = NewSession(engine.get(), name);
      EXPECT_EQ(RunTurn(engine.get(), session, turns[0]).tokens(), alone[0].tokens());
      if (parks) {
        EXPECT_OK(engine->Park(session));
        EXPECT_OK(engine->Rename(session, name + " again"));
        EXPECT_OK(engine->Rename(session, name));
      }
    }
    auto engine = Start(options);
    EXPECT_EQ(engine->Stats().row_bytes, 0);
    const auto found = engine->FindSession("", name);
    ASSERT_TRUE(found.ok()) << found.status();
    const TurnOutcome said = RunTurn(engine.get(), *found, turns[1]);
    EXPECT_EQ(said.tokens(), alone[1].tokens()) << name;
    EXPECT_GE(said.started->cached_tokens, 80) << "the state is in the file";
    EXPECT_GT(engine->Stats().row_bytes, 0);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EngineRowsTest, MemoryPressureTakesPrefixesWithRowsToo) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = testing::PageBytes(*model(), SmallEngine()) * 40 + (int64_t{1} << 16);
  auto engine = Start(options);
  for (uint64_t i = 0; i < 12; ++i) {
    const SessionId session = NewSession(engine.get());
    const TurnOutcome said =
        RunTurn(engine.get(), session, Mixed(RandomTokens(60, 20 + i), 0, 50, 3));
    EXPECT_OK(said.done().status) << i;
    EXPECT_OK(engine->Close(session, true));
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EngineRowsTest, GuessesPenaltiesAndChoicesPassRowsOver) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 6; ++i) {
    const auto again = RandomTokens(12, 30);
    tokens.insert(tokens.end(), again.begin(), again.end());
  }
  TurnOptions turn = Mixed(tokens, 30, 40, 40);
  turn.n_choices = 2;
  turn.sampling.temperature = 0.6f;
  turn.sampling.seed = 5;
  turn.sampling.repetition_penalty = 1.2f;
  turn.sampling.penalty_window = 20;
  EngineOptions plain = SmallEngine();
  plain.speculation = Speculation::kOff;
  auto without = Start(plain);
  const TurnOutcome expected = RunTurn(without.get(), NewSession(without.get()), turn);
  EXPECT_OK(expected.done().status);
  for (const Speculation kind : {Speculation::kLookup, Speculation::kDraft}) {
    EngineOptions options = SmallEngine();
    options.speculation = kind;
    if (kind == Speculation::kDraft) {
      options.draft_model = TinyModel("llama");
      options.draft_at_any_cost = true;
    }
    auto engine = Start(options);
    ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), expected);
    if (kind == Speculation::kDraft) {
      EXPECT_EQ(engine->Stats().guessed_tokens, 0);
    }
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EngineRowsTest, WhatIsNoRowIsRefused) {
  EngineOptions options = SmallEngine();
  options.max_row_bytes = 64 << 10;
  auto engine = Start(options);
  const auto width = static_cast<size_t>(model()->row_width());
  const SessionId session = NewSession(engine.get());
  const auto refusal = [&](const TurnOptions& turn) {
    return engine->Submit(session, turn).status();
  };
  EXPECT_THAT(refusal(GreedyParts({{.rows = std::vector<float>(width + 1)}}, 1)),
              IsError(StatusCode::kInvalidArgument, "numbers; input embeddings have"));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -INFINITY}) {
    std::vector<float> rows(3 * width, 0.5f);
    rows[2 * width - 1] = bad;
    EXPECT_THAT(refusal(GreedyParts({{.rows = rows}}, 1)),
                IsError(StatusCode::kInvalidArgument, "vector 1 of the prompt has a number"));
  }
  EXPECT_THAT(refusal(GreedyParts({{.tokens = {1, -2}}}, 1)),
              IsError(StatusCode::kInvalidArgument, "token -2 is outside the vocabulary"));
  EXPECT_THAT(refusal(GreedyParts({{}}, 1)), IsError(StatusCode::kInvalidArgument, "empty prompt"));
  EXPECT_THAT(refusal(GreedyParts({{.rows = std::vector<float>(400 * width)}}, 1)),
              IsError(StatusCode::kOutOfRange, "that a session may hold"));
  EXPECT_THAT(refusal(GreedyParts({{.rows = std::vector<float>(600 * width)}}, 1)),
              IsError(StatusCode::kOutOfRange, "exceeds the available context size"));
  TurnOptions scored = GreedyParts({{.rows = std::vector<float>(width)}}, 1);
  scored.prompt_logprobs = true;
  EXPECT_THAT(refusal(scored),
              IsError(StatusCode::kInvalidArgument, "input embeddings: these have none"));
  // What the session holds already counts.
  RunTurn(engine.get(), session, GreedyParts({{.rows = std::vector<float>(100 * width)}}, 1));
  EXPECT_THAT(refusal(GreedyParts({{.rows = std::vector<float>(100 * width)}}, 1)),
              IsError(StatusCode::kOutOfRange, "that a session may hold"));
  TurnOptions later = Greedy({5}, 1);
  later.prompt_logprobs = true;
  EXPECT_THAT(refusal(later),
              IsError(StatusCode::kInvalidArgument, "input embeddings: these have none"));
}

// A turn of rows whose like no other number gives.
TurnOptions RowsFrom(float value, int64_t n_rows) {
  TurnOptions turn = Greedy({}, 1);
  std::vector<float> rows(static_cast<size_t>(n_rows * TinyModel("llama")->row_width()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = 1e6f * value + static_cast<float>(i);
  turn.parts = std::make_shared<const Parts>(Parts{{.rows = std::move(rows)}});
  return turn;
}

TEST(EngineRows, ThatCanNeverFitAreRefusedForGood) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = int64_t{256} << 10;
  auto engine = StartEngine(options);
  EXPECT_EQ(engine->options().max_row_bytes, options.memory_bytes / 2);
  EXPECT_THAT(engine->Submit(NewSession(engine.get()), RowsFrom(1, 400)).status(),
              IsError(StatusCode::kOutOfRange, "that a session may hold"));
}

TEST(EngineRows, TakeHalfOfTheMemoryAtMost) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = int64_t{1} << 20;
  auto engine = StartEngine(options);
  const int64_t each = RowTable::BytesOf(400, TinyModel("llama")->row_width());
  int64_t held = 0;
  Status refused;
  for (int i = 0; refused.ok() && i < 20; ++i) {
    const auto turn =
        engine->Submit(NewSession(engine.get()), RowsFrom(static_cast<float>(i), 400));
    refused = turn.status();
    if (!turn.ok()) break;
    Collect(turn->get());
    held += each;
  }
  EXPECT_THAT(refused, IsError(StatusCode::kResourceExhausted, "half of the memory"));
  EXPECT_LE(held, options.memory_bytes / 2);
  EXPECT_GT(held + each, options.memory_bytes / 2);
  EXPECT_OK(engine->CheckIntegrity());
}

// The next answer of a session with the rows, on an engine of its own.
std::vector<int32_t> SaysNext(const TurnOptions& rows) {
  const TurnOptions turns[] = {rows, Greedy({7}, 6)};
  return RunAlone(TinyModel("llama"), SmallEngine(), turns)[1].tokens();
}

TEST(EngineRows, OfAFileCountForTheSessionThatIsRestored) {
  const TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  const TurnOptions rows = RowsFrom(1, 200);
  {
    auto engine = StartEngine(options);
    RunTurn(engine.get(), NewSession(engine.get(), "a"), rows);
  }
  EngineOptions less = options, little_memory = options;
  less.max_row_bytes = 64 << 10;
  little_memory.memory_bytes = 160 << 10;
  for (const EngineOptions& limits : {less, little_memory}) {
    auto engine = StartEngine(limits);
    const auto found = engine->FindSession("", "a");
    ASSERT_TRUE(found.ok()) << found.status();
    const auto refused =
        IsError(StatusCode::kFailedPrecondition, "200 input embeddings, which take");
    EXPECT_THAT(engine->Restore(*found), refused);
    EXPECT_THAT(engine->Fork(*found, 100, {}).status(), refused);
    EXPECT_THAT(RunTurn(engine.get(), *found, Greedy({7}, 1)).done().status, refused);
    EXPECT_EQ(engine->Stats().row_bytes, 0);
    EXPECT_THAT(engine->Inspect(*found)->note, ::testing::HasSubstr("here a session may hold"));
    // Other sessions continue, and so do turns without rows.
    EXPECT_OK(RunTurn(engine.get(), NewSession(engine.get()), Greedy({7}, 1)).done().status);
    EXPECT_OK(engine->Rename(*found, "b"));
    EXPECT_OK(engine->Rename(*found, "a"));
    EXPECT_OK(engine->CheckIntegrity());
  }
  auto engine = StartEngine(options);
  const auto found = engine->FindSession("", "a");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(RunTurn(engine.get(), *found, Greedy({7}, 6)).tokens(), SaysNext(rows));
}

// Until there is memory: the files of the sessions that must go are being written.
void Insist(const std::function<Status()>& call) {
  Status status = call();
  for (int i = 0; i < 5000 && status.code() == StatusCode::kResourceExhausted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = call();
  }
  EXPECT_OK(status);
}

Status EndOf(Engine* engine, SessionId session, const TurnOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine->Submit(session, options));
  return Collect(turn.get()).done().status;
}

TEST(EngineRows, OfIdleSessionsGoWhereTheirFilesAre) {
  const TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  options.memory_bytes = int64_t{640} << 10;
  constexpr int kSessions = 6;
  // Half of the memory holds the rows of two.
  const int64_t n_rows =
      options.memory_bytes / 5 / RowTable::BytesOf(1, TinyModel("llama")->row_width());
  const auto name_of = [](int i) { return StrCat("s", i); };
  const auto session_of = [&](Engine* engine, int i) {
    const auto found = engine->FindSession("", name_of(i));
    EXPECT_OK(found);
    return found.ok() ? *found : SessionId{};
  };
  {
    auto engine = StartEngine(options);
    for (int i = 0; i < kSessions; ++i) {
      const SessionId session = NewSession(engine.get(), name_of(i));
      const TurnOptions rows = RowsFrom(static_cast<float>(i), n_rows);
      Insist([&] { return EndOf(engine.get(), session, rows); });
      EXPECT_LE(engine->Stats().row_bytes, options.memory_bytes / 2);
    }
    EXPECT_EQ(engine->Inspect(session_of(engine.get(), 0))->state, SessionState::kParked);
  }
  auto engine = StartEngine(options);
  for (const int i : {3, 0, 5, 1, 4, 2}) {
    const SessionId session = session_of(engine.get(), i);
    Insist([&] { return engine->Restore(session); });
    EXPECT_LE(engine->Stats().row_bytes, options.memory_bytes / 2);
    EXPECT_EQ(RunTurn(engine.get(), session, Greedy({7}, 6)).tokens(),
              SaysNext(RowsFrom(static_cast<float>(i), n_rows)))
        << i;
    EXPECT_OK(engine->CheckIntegrity());
  }
  // Those of sessions without a file stay, and then no other comes back, until they go.
  EXPECT_OK(engine->Park(session_of(engine.get(), 0)));
  std::vector<SessionId> anonymous;
  for (int i = 10; i < 12; ++i) {
    anonymous.push_back(NewSession(engine.get()));
    const TurnOptions rows = RowsFrom(static_cast<float>(i), n_rows);
    Insist([&] { return EndOf(engine.get(), anonymous.back(), rows); });
  }
  const auto refused = IsError(StatusCode::kResourceExhausted, "half of the memory for sessions");
  EXPECT_THAT(engine->Restore(session_of(engine.get(), 0)), refused);
  EXPECT_THAT(RunTurn(engine.get(), session_of(engine.get(), 0), Greedy({7}, 1)).done().status,
              refused);
  EXPECT_LE(engine->Stats().row_bytes, options.memory_bytes / 2);
  for (const SessionId session : anonymous) EXPECT_OK(engine->Close(session, true));
  EXPECT_OK(engine->Restore(session_of(engine.get(), 0)));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineRows, AreRefusedByABackendThatTakesNone) {
  static const class : public testing::WrappedBackend {
   public:
    const BackendCapabilities& capabilities() const override {
      static const BackendCapabilities none = [this] {
        BackendCapabilities without = WrappedBackend::capabilities();
        without.rows = false;
        return without;
      }();
      return none;
    }
  } backend;
  const auto model = TinyModel("llama", 1, &backend);
  auto engine = StartEngine(SmallEngine(), model);
  TurnOptions turn = Greedy({1}, 1);
  turn.parts = std::make_shared<const Parts>(
      Parts{{.rows = std::vector<float>(static_cast<size_t>(model->row_width()))}});
  EXPECT_THAT(engine->SubmitOnce("", turn).status(),
              IsError(StatusCode::kUnimplemented, "the cpu backend takes no input embeddings"));
}

}  // namespace
}  // namespace weft
