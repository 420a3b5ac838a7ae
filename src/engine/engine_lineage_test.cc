// A conversation that called a tool keeps its state in memory while its children run, under a
// budget that does not hold all of them; so do prefixes that clients marked.
#include "engine/engine_test_util.h"

namespace weft {
namespace {

constexpr int64_t kParentTokens = 240;
constexpr int64_t kChildTokens = 160;
constexpr int64_t kSystemTokens = 48;

class EngineLineageTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
  static bool is_recurrent() { return std::string_view(GetParam()).starts_with("recurrent"); }

  // A prompt of this many tokens that begins like all the others.
  static std::vector<int32_t> Prompt(int64_t n_tokens, uint64_t seed) {
    std::vector<int32_t> prompt = RandomTokens(kSystemTokens, 1);
    const std::vector<int32_t> own = RandomTokens(n_tokens - kSystemTokens, 100 + seed);
    prompt.insert(prompt.end(), own.begin(), own.end());
    return prompt;
  }
  static TurnOutcome Ask(Engine* engine, const TurnOptions& options, bool calls = false,
                         const std::string& name = "") {
    auto turn = engine->SubmitNamed({.name = name}, options, {});
    EXPECT_OK(turn.status());
    TurnOutcome outcome = Collect(turn->turn.get());
    if (calls) turn->turn->ExpectMore();
    EXPECT_OK(engine->CheckIntegrity());
    return outcome;
  }
  // What the client sends after an answer.
  static std::vector<int32_t> After(const std::vector<int32_t>& prompt, const TurnOutcome& outcome,
                                    uint64_t seed) {
    std::vector<int32_t> next = prompt;
    next.insert(next.end(), outcome.tokens().begin(), outcome.tokens().end());
    const std::vector<int32_t> result = RandomTokens(9, 200 + seed);
    next.insert(next.end(), result.begin(), result.end());
    return next;
  }

  static TurnOptions Whole(std::vector<int32_t> tokens) {
    TurnOptions options = Greedy(std::move(tokens), 6);
    options.tokens_are_whole_context = true;
    return options;
  }
  // What all conversations of Delegate take.
  static int64_t NeededBytes() {
    auto engine = StartEngine(SmallEngine(), model());
    Delegate(engine.get(), /*calls=*/false);
    const EngineStats stats = engine->Stats();
    return stats.page_bytes + stats.slot_bytes + stats.checkpoint_bytes;
  }
  // A parent, five children of two turns each, and the parent's next turn: its outcome.
  static TurnOutcome Delegate(Engine* engine, bool calls) {
    const std::vector<int32_t> prompt = Prompt(kParentTokens, 0);
    const TurnOutcome parent = Ask(engine, Whole(prompt), calls);
    for (uint64_t i = 1; i <= 5; ++i) {
      const std::vector<int32_t> task = Prompt(kChildTokens, i);
      const TurnOutcome first = Ask(engine, Whole(task), calls);
      Ask(engine, Whole(After(task, first, i)));
    }
    const TurnOptions next = Whole(After(prompt, parent, 0));
    TurnOutcome outcome = Ask(engine, next);
    EXPECT_EQ(outcome.tokens(), RunAlone(model(), SmallEngine(), std::span(&next, 1))[0].tokens());
    return outcome;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineLineageTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

TEST_P(EngineLineageTest, AParentFindsItsOwnAfterItsChildrenUnderHalfOfTheMemory) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = NeededBytes() / 2;
  options.checkpoint_share = 0.9;
  // All but the token that the model said last, and the tool's result.
  constexpr int64_t kAll = kParentTokens + 6 - 1;
  for (const bool calls : {true, false}) {
    auto engine = StartEngine(options, model());
    const TurnOutcome next = Delegate(engine.get(), calls);
    if (calls) {
      EXPECT_EQ(next.started->cached_tokens, kAll);
    } else {
      EXPECT_LT(next.started->cached_tokens, kAll);
    }
  }
}

TEST_P(EngineLineageTest, ANamedParentIsGivenUpAfterItsChildren) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = NeededBytes() / 2;
  for (const bool calls : {true, false}) {
    auto engine = StartEngine(options, model());
    Ask(engine.get(), Whole(Prompt(kChildTokens, 0)), calls, "parent");
    for (uint64_t i = 1; i <= 12; ++i) {
      Ask(engine.get(), Whole(Prompt(kChildTokens, i)), false, "child" + std::to_string(i));
    }
    EXPECT_GT(engine->Stats().sessions_dropped, 0);
    const SessionId parent = *engine->FindSession("", "parent");
    const SessionId first = *engine->FindSession("", "child1");
    EXPECT_EQ(engine->Inspect(parent)->n_computed > 0, calls);
    if (calls) {
      EXPECT_EQ(engine->Inspect(first)->n_computed, 0);
    }
  }
}

TEST_P(EngineLineageTest, AMarkedPrefixIsResumedExactlyThere) {
  auto engine = StartEngine(SmallEngine(), model());
  TurnOptions first = Whole(Prompt(kParentTokens, 0));
  first.prefix_marks = {{.n_tokens = 101}};
  Ask(engine.get(), first);
  std::vector<int32_t> other(first.tokens.begin(), first.tokens.begin() + 101);
  for (const int32_t token : RandomTokens(30, 9)) other.push_back(token);
  other[101] = first.tokens[101] == 300 ? 301 : 300;
  EXPECT_EQ(Ask(engine.get(), Whole(other)).started->cached_tokens, 101);
}

TEST_P(EngineLineageTest, AMarkedPrefixIsEvictedLast) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = NeededBytes() / 2;
  options.checkpoint_share = 0.9;
  for (const bool is_marked : {true, false}) {
    auto engine = StartEngine(options, model());
    TurnOptions first = Whole(Prompt(kParentTokens, 0));
    if (is_marked) first.prefix_marks = {{.n_tokens = kParentTokens}};
    Ask(engine.get(), first);
    for (uint64_t i = 1; i <= 5; ++i) Ask(engine.get(), Whole(Prompt(kChildTokens, i)));
    std::vector<int32_t> longer = first.tokens;
    longer.push_back(300);
    const TurnOutcome again = Ask(engine.get(), Whole(longer));
    EXPECT_EQ(again.started->cached_tokens == kParentTokens, is_marked);
  }
}

TEST_P(EngineLineageTest, MarksLieInThePrompt) {
  auto engine = StartEngine(SmallEngine(), model());
  const auto refused = [&](std::vector<PrefixMark> marks) {
    TurnOptions turn = Greedy(RandomTokens(20, 1), 1);
    turn.prefix_marks = std::move(marks);
    return engine->SubmitOnce("", turn).status();
  };
  const auto code = StatusCode::kInvalidArgument;
  EXPECT_THAT(refused({{.n_tokens = 0}}), IsError(code, "between 1 and the 20 tokens"));
  EXPECT_THAT(refused({{.n_tokens = 21}}), IsError(code, "between 1 and the 20 tokens"));
  EXPECT_THAT(refused({{.n_tokens = 5, .keep_for = std::chrono::hours(24 * 8)}}),
              IsError(code, "up to a week"));
  EXPECT_THAT(refused(std::vector<PrefixMark>(17, {.n_tokens = 5})),
              IsError(code, "too many prefix marks"));
  EXPECT_OK(refused({{.n_tokens = 20}, {.n_tokens = 1}}));
}

}  // namespace
}  // namespace weft
