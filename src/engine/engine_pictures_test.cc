// Prompts with rows that belong together, as a picture's do: rows that see each other (Gemma 3),
// rows on a grid (Qwen 2 VL), and rows to which layers add more (Qwen 3 VL). The same bits as one
// step of the whole prompt, however they are computed, found again, forked and kept.
#include <cmath>
#include <map>

#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft {
namespace {

using Parts = std::vector<PromptPart>;

struct Case {
  const char* model;
  const char* backend;
};

class EnginePicturesTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::shared_ptr<const Model> model() {
    static std::map<std::pair<std::string, std::string>, std::shared_ptr<const Model>> models;
    std::shared_ptr<const Model>& known = models[{GetParam().model, GetParam().backend}];
    if (known == nullptr) {
      known = TinyModel(GetParam().model, /*seed=*/1, *FindBackend(GetParam().backend));
    }
    return known;
  }
  static EngineOptions Options() {
    EngineOptions options = SmallEngine();
    options.kv_type = KvType::kF32;
    return options;
  }
  static std::unique_ptr<Engine> Start(const EngineOptions& options = Options()) {
    return StartEngine(options, model());
  }

  static bool is_mutual() { return std::string_view(GetParam().model) == "gemma3"; }
  static PromptPart Picture(uint64_t seed, int64_t rows, int64_t columns) {
    PromptPart part;
    if (is_mutual()) {
      part.form.mutual = true;
    } else {
      part.form.grid_rows = rows, part.form.grid_columns = columns;
    }
    uint64_t state = seed * 977 + 1;
    for (int64_t i = 0; i < rows * columns * model()->row_width(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      part.rows.push_back(static_cast<float>(state >> 40) / float{1 << 23} - 1);
    }
    return part;
  }
  static Parts Prompt(uint64_t seed = 1) {
    PromptPart first = Picture(seed, 5, 7), second = Picture(seed + 50, 2, 3);
    first.tokens = RandomTokens(20, 1);
    second.tokens = RandomTokens(9, 2);
    return {std::move(first), std::move(second), {.tokens = RandomTokens(6, 3)}};
  }
  static constexpr int64_t kSize = 20 + 35 + 9 + 6 + 6;
  static TurnOptions TurnOf(Parts parts, int64_t max_tokens = 8) {
    TurnOptions turn = Greedy({}, max_tokens);
    turn.parts = std::make_shared<const Parts>(std::move(parts));
    turn.top_logprobs = 2;
    return turn;
  }
  static TurnOutcome Fresh(const TurnOptions& turn) {
    const auto engine = Start();
    return RunTurn(engine.get(), NewSession(engine.get()), turn);
  }
  static void ExpectThoseOfOneStep(const std::vector<int64_t>& chunks);
};
const auto kCaseName = [](const auto& info) { return std::string(info.param.model); };
INSTANTIATE_TEST_SUITE_P(Models, EnginePicturesTest,
                         ::testing::Values(Case{"gemma3", "cpu"}, Case{"qwen2vl", "cpu"},
                                           Case{"qwen3vl", "cpu"}),
                         kCaseName);
class EnginePicturesReferenceTest : public EnginePicturesTest {};
INSTANTIATE_TEST_SUITE_P(Models, EnginePicturesReferenceTest,
                         ::testing::Values(Case{"gemma3", "reference"},
                                           Case{"qwen2vl", "reference"},
                                           Case{"qwen3vl", "reference"}),
                         kCaseName);

// The prompt as one step of a backend, with places and runs written out here.
std::vector<float> InOneStep(const char* backend, const char* name, const Parts& parts,
                             size_t row_width) {
  std::vector<TokenId> tokens;
  std::vector<std::span<const float>> rows;
  std::vector<AxisPositions> axes;
  std::vector<TokenRun> mutual;
  int32_t next = 0;
  for (const PromptPart& part : parts) {
    for (const TokenId token : part.tokens) {
      tokens.push_back(token);
      axes.push_back({next, next, next});
      ++next;
    }
    const int64_t begin = std::ssize(tokens);
    const auto columns = static_cast<int32_t>(part.form.grid_columns);
    for (size_t i = 0; i < part.rows.size() / row_width; ++i) {
      const auto n = static_cast<int32_t>(i);
      tokens.push_back(kAnyRow);
      rows.push_back(std::span(part.rows).subspan(i * row_width, row_width));
      const int32_t own = next + n;
      axes.push_back(columns > 0 ? AxisPositions{next, next + n / columns, next + n % columns}
                                 : AxisPositions{own, own, own});
    }
    const int64_t longer = std::max(part.form.grid_rows, part.form.grid_columns);
    next += static_cast<int32_t>(columns > 0 ? longer : std::ssize(tokens) - begin);
    if (part.form.mutual) mutual.push_back({begin, std::ssize(tokens)});
  }
  if (!mutual.empty()) axes.clear();
  auto loaded = testing::LoadModel(backend, testing::TinyModelFile(name), testing::kTinyContext);
  EXPECT_OK(loaded);
  auto runner = testing::ModelRunner::New(*loaded, {});
  EXPECT_OK(runner);
  const testing::ModelRunner::Part part = {
      .sequence = (*runner)->Add(), .tokens = tokens, .rows = rows, .axes = axes, .mutual = mutual};
  auto logits = (*runner)->Step(std::span(&part, 1));
  EXPECT_OK(logits);
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

void EnginePicturesTest::ExpectThoseOfOneStep(const std::vector<int64_t>& chunks) {
  const std::vector<float> expected =
      InOneStep(GetParam().backend, GetParam().model, Prompt(), model()->row_width());
  TurnOptions turn = TurnOf(Prompt(), 0);
  turn.prompt_chunks = chunks;
  std::vector<float> logits(expected.size());
  const size_t n_vocab = expected.size() / kSize;
  turn.on_prompt_logits = [&](int64_t position, std::span<const float> row) {
    std::ranges::copy(row, logits.begin() + position * static_cast<int64_t>(n_vocab));
  };
  EXPECT_OK(Fresh(turn).done().status);
  EXPECT_TRUE(testing::SameBytes(logits, expected));
}

TEST_P(EnginePicturesTest, FormsActAsTheReferenceSays) {
  const std::vector<float> expected =
      InOneStep(GetParam().backend, GetParam().model, Prompt(), model()->row_width());
  const std::vector<float> by_reference =
      InOneStep("reference", GetParam().model, Prompt(), model()->row_width());
  // The weights are in 8 bits: what forms change is more than what that does.
  Parts plain = Prompt();
  for (PromptPart& part : plain) part.form = {};
  const double by_forms = testing::MaxDifference(
      expected, InOneStep(GetParam().backend, GetParam().model, plain, model()->row_width()));
  EXPECT_LT(3 * testing::MaxDifference(expected, by_reference), by_forms);
}

TEST_P(EnginePicturesTest, LogitsAreThoseOfOneStepInAnyChunks) {
  for (const std::vector<int64_t>& chunks :
       {std::vector<int64_t>{}, {1}, {7, 3, 30}, {20, 1}, {40}}) {
    ExpectThoseOfOneStep(chunks);
  }
}
TEST_P(EnginePicturesReferenceTest, LogitsAreThoseOfOneStep) { ExpectThoseOfOneStep({7, 3, 30}); }

TEST_P(EnginePicturesTest, TheSameBitsInAnyChunksAndBesideOthers) {
  TurnOptions turn = TurnOf(Prompt(), 20);
  const TurnOutcome alone = Fresh(turn);
  EXPECT_OK(alone.done().status);
  auto engine = Start();
  std::vector<std::shared_ptr<Turn>> others;
  for (uint64_t i = 0; i < 3; ++i) {
    others.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), TurnOf(Prompt(7 + i), 30)));
  }
  turn.prompt_chunks = {7, 1, 30};
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get(), "", "d"), turn), alone);
  for (const auto& other : others) EXPECT_OK(Collect(other.get()).done().status);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePicturesTest, FormsAreHeeded) {
  const TurnOutcome said = Fresh(TurnOf(Prompt()));
  Parts plain = Prompt();
  for (PromptPart& part : plain) part.form = {};
  EXPECT_NE(Fresh(TurnOf(plain)).choices[0].events[0].logprob, said.choices[0].events[0].logprob);
  if (is_mutual()) return;
  Parts turned = Prompt();
  std::swap(turned[0].form.grid_rows, turned[0].form.grid_columns);
  EXPECT_NE(Fresh(TurnOf(turned)).choices[0].events[0].logprob, said.choices[0].events[0].logprob);
}

TEST_P(EnginePicturesTest, ABAFindsItsPrefixAndNoOtherPictureHasIt) {
  auto engine = Start();
  const auto run = [&](const Parts& parts) {
    return RunTurn(engine.get(), NewSession(engine.get()), TurnOf(parts));
  };
  const TurnOutcome first = run(Prompt(1)), other = run(Prompt(2)), again = run(Prompt(1));
  EXPECT_EQ(first.started->cached_tokens, 0);
  EXPECT_EQ(other.started->cached_tokens, 20) << "what comes before the picture";
  EXPECT_EQ(again.started->cached_tokens, kSize - 1) << "as of text";
  ExpectSameAnswer(again, first);
  ExpectSameAnswer(other, Fresh(TurnOf(Prompt(2))));
  // The same embeddings in another form are another picture.
  Parts plain = Prompt(1);
  plain[0].form = {};
  EXPECT_EQ(run(plain).started->cached_tokens, 20);
  // One row that differs, the last one of the first picture, makes another picture.
  Parts last = Prompt(1);
  last[0].rows.back() += 1;
  EXPECT_EQ(run(last).started->cached_tokens, 20);
  // Another question about the same pictures has all but that.
  Parts question = Prompt(1);
  question[2].tokens = RandomTokens(30, 9);
  const TurnOutcome asked = run(question);
  EXPECT_GE(asked.started->cached_tokens, 20 + 35 + 9 + 6 - 15);
  ExpectSameAnswer(asked, Fresh(TurnOf(question)));
  EXPECT_OK(engine->CheckIntegrity());
}

// A prefix may end within a picture: where the prompt does, or where a page does.
TEST_P(EnginePicturesTest, PromptsThatEndWithAPictureAreFoundToo) {
  Parts parts = {Prompt()[0]};
  const TurnOutcome expected = Fresh(TurnOf(parts));
  auto engine = Start();
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), TurnOf(parts)), expected);
  const TurnOutcome again = RunTurn(engine.get(), NewSession(engine.get()), TurnOf(parts));
  EXPECT_EQ(again.started->cached_tokens, 54);
  ExpectSameAnswer(again, expected);
}

TEST_P(EnginePicturesTest, SessionsGoOnAfterThem) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, TurnOf(Prompt(), 5));
  const std::vector<int32_t> all = TokensOf(engine.get(), session);
  const TurnOutcome next = RunTurn(engine.get(), session, TurnOf({Picture(9, 4, 4)}, 12));
  Parts whole = Prompt();
  PromptPart last = Picture(9, 4, 4);
  last.tokens.assign(all.begin() + kSize, all.end());
  whole.push_back(std::move(last));
  ExpectSameAnswer(next, Fresh(TurnOf(whole, 12)));
}

TEST_P(EnginePicturesTest, ForksAndUndoLeaveThemWhole) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, TurnOf(Prompt(), 5));
  for (const int64_t within : {21, 54}) {
    const absl::Status refused = engine->Fork(session, within, {}).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused;
    EXPECT_EQ(engine->Truncate(session, within).code(), StatusCode::kInvalidArgument);
  }
  for (const int64_t at : {int64_t{20}, int64_t{55}, int64_t{60}}) {
    const auto fork = engine->Fork(session, at, {});
    ASSERT_THAT(fork, IsOk());
    const TurnOutcome said = RunTurn(engine.get(), *fork, TurnOf({{.tokens = RandomTokens(5, 8)}}));
    Parts same = Prompt();
    same.resize(2);
    if (at < 55) {
      same.resize(1);
      same[0].rows.clear(), same[0].form = {};
    } else {
      same[1] = {.tokens = {same[1].tokens.begin(), same[1].tokens.begin() + at - 55}};
    }
    same.push_back({.tokens = RandomTokens(5, 8)});
    ExpectSameAnswer(said, Fresh(TurnOf(same)));
  }
  EXPECT_OK(engine->Truncate(session, 55));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePicturesTest, ParkedSessionsAndThoseOfAnEarlierProcessHaveThem) {
  const TestFolder folder;
  EngineOptions options = Options();
  options.state_dir = folder.path();
  options.state_disk_bytes = int64_t{1} << 28;
  const std::vector<TurnOptions> turns = {TurnOf(Prompt(), 10),
                                          TurnOf({{.tokens = RandomTokens(8, 13)}}, 10)};
  const std::vector<TurnOutcome> alone = RunAlone(model(), Options(), turns);
  {
    auto engine = Start(options);
    const SessionId session = NewSession(engine.get(), "kept");
    ExpectSameAnswer(RunTurn(engine.get(), session, turns[0]), alone[0]);
    EXPECT_OK(engine->Park(session));
    EXPECT_OK(engine->Restore(session));
  }
  auto engine = Start(options);
  const auto found = engine->FindSession("", "kept");
  ASSERT_THAT(found, IsOk());
  const TurnOutcome said = RunTurn(engine.get(), *found, turns[1]);
  ExpectSameAnswer(said, alone[1]);
  EXPECT_GE(said.started->cached_tokens, kSize) << "the state is in the file";
  EXPECT_EQ(engine->Fork(*found, 30, {}).status().code(), StatusCode::kInvalidArgument);
  // Prompts of others find what the file brought.
  const TurnOutcome again = RunTurn(engine.get(), NewSession(engine.get()), turns[0]);
  EXPECT_EQ(again.tokens(), alone[0].tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

// An engine whose steps are too small refuses what a larger one has kept.
TEST_P(EnginePicturesTest, SessionsWithTooLargePicturesAreRefused) {
  if (!is_mutual()) return;
  const TestFolder folder;
  EngineOptions options = Options();
  options.state_dir = folder.path();
  {
    auto engine = Start(options);
    RunTurn(engine.get(), NewSession(engine.get(), "kept"), TurnOf(Prompt(), 1));
  }
  options.max_step_tokens = 32;
  auto engine = Start(options);
  const auto found = engine->FindSession("", "kept");
  ASSERT_THAT(found, IsOk());
  const TurnOptions turn = Greedy(RandomTokens(3, 1), 2);
  EXPECT_THAT(RunTurn(engine.get(), *found, turn).done().status,
              IsError(StatusCode::kOutOfRange, "larger than steps of 32"));
}

TEST_P(EnginePicturesTest, WhoIsSetBackForMemoryComputesThemAgain) {
  EngineOptions options = Options();
  options.memory_bytes = testing::PageBytes(*model(), options) * 18 + (int64_t{1} << 20);
  std::vector<TurnOutcome> expected;
  for (uint64_t i = 0; i < 4; ++i) expected.push_back(Fresh(TurnOf(Prompt(i), 40)));
  auto engine = Start(options);
  std::vector<std::shared_ptr<Turn>> turns;
  for (uint64_t i = 0; i < 4; ++i) {
    turns.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), TurnOf(Prompt(i), 40)));
  }
  for (uint64_t i = 0; i < 4; ++i) ExpectSameAnswer(Collect(turns[i].get()), expected[i]);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePicturesTest, GuessesAreVerifiedAfterThem) {
  Parts parts = Prompt();
  for (int i = 0; i < 4; ++i) parts.push_back({.tokens = RandomTokens(12, 30)});
  const TurnOptions turn = TurnOf(parts, 40);
  EngineOptions plain = Options();
  plain.speculation = Speculation::kOff;
  const auto without = Start(plain);
  const TurnOutcome expected = RunTurn(without.get(), NewSession(without.get()), turn);
  ExpectSameAnswer(Fresh(turn), expected);
}

TEST_P(EnginePicturesTest, WhatIsNoPictureIsRefused) {
  auto engine = Start();
  const auto refusal = [&](PromptPart part) {
    return RunTurn(engine.get(), NewSession(engine.get()), TurnOf({std::move(part)})).done().status;
  };
  PromptPart part = Picture(1, 4, 4);
  part.form.grid_rows = 3, part.form.grid_columns = 5;
  EXPECT_EQ(refusal(part).code(), StatusCode::kInvalidArgument);
  part.form.grid_rows = 4, part.form.grid_columns = -4;
  EXPECT_EQ(refusal(part).code(), StatusCode::kInvalidArgument);
  if (!is_mutual()) return;
  EXPECT_THAT(std::string(Message(refusal(Picture(1, 13, 5)))),
              ::testing::HasSubstr("larger than steps of 64"));
}

TEST(EnginePicturesOfOthersTest, ModelsThatCannotSayIt) {
  auto engine = StartEngine(SmallEngine(), TinyModel("qwen35-mtp"));
  TurnOptions turn = Greedy({1, 2}, 1);
  PromptPart part{.rows = std::vector<float>(4 * 64, 0.5f), .form = {.mutual = true}};
  turn.parts = std::make_shared<const Parts>(Parts{part});
  const TurnOutcome said = RunTurn(engine.get(), NewSession(engine.get()), turn);
  EXPECT_FALSE(said.done().status.ok());
}

}  // namespace
}  // namespace weft
