// Adapters that wait for their invocation (aLoRA) in the engine: where in a text they act, and that
// what comes before is the base's.
#include <cstring>
#include <initializer_list>

#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "model/adapter_spec.h"
#include "tests/support/model_runner.h"
#include "tools/make_adapter.h"

namespace weft {
namespace {

using Scales = std::vector<AdapterScale>;
using Tokens = std::vector<int32_t>;

// RandomTokens gives none of them.
const Tokens kWake = {1, 2, 1};

Tokens Joined(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class EngineInvocationTest : public ::testing::TestWithParam<const char*> {
 protected:
  // "wake" and "rise" wait, "law" does not.
  void SetUp() override {
    const std::string base = testing::TinyModelFile(GetParam());
    ModelOptions options;
    options.n_threads = 1;
    for (const char* const name : {"law", "wake", "rise"}) {
      tools::MakeAdapterOptions make{.rank = 4, .seed = options.adapters.size() + 1};
      if (!options.adapters.empty()) make.invocation = {1, 2, 1};
      options.adapters.push_back({name, StrCat(folder_.path(), "/", name, ".gguf")});
      ASSERT_THAT(tools::MakeAdapter(base, make, options.adapters.back().path), IsOk());
    }
    auto model = Model::Load(base, options);
    ASSERT_THAT(model, IsOk());
    model_ = *std::move(model);
  }

  static TurnOptions With(Scales adapters, Tokens tokens, int64_t max_tokens = 6) {
    TurnOptions turn = Greedy(std::move(tokens), max_tokens);
    turn.top_logprobs = 2;
    turn.adapters = std::move(adapters);
    turn.adapters_are_default = false;
    return turn;
  }
  // The answer of an engine that caches nothing.
  TurnOutcome Alone(const TurnOptions& turn) const {
    EngineOptions options = SmallEngine();
    options.prefix_cache = false;
    return RunAlone(model_, options, std::span(&turn, 1))[0];
  }
  static TurnOutcome Ask(Engine* engine, const TurnOptions& turn, const std::string& domain = "") {
    const auto running = engine->SubmitOnce(domain, turn);
    EXPECT_OK(running);
    return running.ok() ? Collect(running->get()) : TurnOutcome();
  }
  // Asks as it would be answered alone; returns how many tokens were cached.
  int64_t CachedOf(Engine* engine, const TurnOptions& turn) const {
    const TurnOutcome outcome = Ask(engine, turn);
    ExpectSameAnswer(outcome, Alone(turn));
    return outcome.started->cached_tokens;
  }

  const TestFolder folder_;
  std::shared_ptr<const Model> model_;
  const Scales wake_ = {{"wake", 1}};
};

using LlamaInvocationTest = EngineInvocationTest;
INSTANTIATE_TEST_SUITE_P(Llama, LlamaInvocationTest, ::testing::Values("llama"));
// With pages alone, with windows, and with recurrent state.
INSTANTIATE_TEST_SUITE_P(All, EngineInvocationTest,
                         ::testing::Values("llama", "gemma3", "qwen35-mtp"));

// The logits of a prompt are those of two steps, of which only the second uses the adapter.
TEST_P(EngineInvocationTest, ActsFromWhereItsTokensBeginForTheLastTime) {
  const Tokens prompt =
      Joined({RandomTokens(21, 1), kWake, RandomTokens(20, 2), {1, 2}, kWake, RandomTokens(9, 3)});
  constexpr size_t kFrom = 46;
  std::vector<Adapter> adapters;
  std::vector<AdapterUse> before, after;
  for (const LoadedAdapter& loaded : model_->adapters()) {
    const int index = static_cast<int>(adapters.size());
    if (loaded.name == "law") before.push_back({index, 0.5f});
    if (loaded.name != "rise") after.push_back({index, loaded.name == "law" ? 0.5f : 1});
    Adapter adapter;
    adapter.file = *ModelFile::Open(loaded.path);
    adapter.spec = *BuildAdapterSpec(*adapter.file, model_->file(), model_->spec());
    adapters.push_back(std::move(adapter));
  }
  const auto loaded = testing::LoadModel("cpu", model_->path(), 512, std::move(adapters));
  ASSERT_THAT(loaded, IsOk());
  const auto runner = testing::ModelRunner::New(*loaded, {.state = {.kv_type = DType::kF16}});
  ASSERT_THAT(runner, IsOk());
  const int sequence = (*runner)->Add();
  const std::span<const int32_t> text(prompt);
  std::vector<float> expected;
  for (const auto& [tokens, uses] :
       {std::pair(text.first(kFrom), before), std::pair(text.subspan(kFrom), after)}) {
    const testing::ModelRunner::Part part{.sequence = sequence, .tokens = tokens, .adapters = uses};
    const auto logits = (*runner)->Step(std::span(&part, 1));
    ASSERT_THAT(logits, IsOk());
    expected.insert(expected.end(), logits->begin(), logits->end());
  }

  auto engine = StartEngine(SmallEngine(), model_);
  TurnOptions turn = With({{"wake", 1}, {"law", 0.5f}}, prompt, 1);
  std::vector<float> got;
  turn.on_prompt_logits = [&](int64_t position, std::span<const float> logits) {
    EXPECT_EQ(position * std::ssize(logits), std::ssize(got));
    got.insert(got.end(), logits.begin(), logits.end());
  };
  Ask(engine.get(), turn);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

TEST_P(EngineInvocationTest, WithoutItsTokensATextIsTheBases) {
  auto engine = StartEngine(SmallEngine(), model_);
  const Tokens prompt = Joined({RandomTokens(40, 4), {1, 2}, RandomTokens(5, 5)});
  const TurnOutcome plain = Ask(engine.get(), With({}, prompt));
  const TurnOutcome waiting = Ask(engine.get(), With(wake_, prompt));
  ExpectSameAnswer(waiting, plain);
  EXPECT_EQ(waiting.started->cached_tokens, std::ssize(prompt) - 1);
}

TEST_P(EngineInvocationTest, ThePrefixIsSharedWithTheBaseInBothDirections) {
  const Tokens prefix = RandomTokens(96, 6);
  const TurnOptions plain = With({}, Joined({prefix, kWake, RandomTokens(30, 7)}));
  const TurnOptions wake = With(wake_, plain.tokens);
  const int64_t whole = std::ssize(plain.tokens) - 1;
  for (const bool base_first : {true, false}) {
    auto engine = StartEngine(SmallEngine(), model_);
    EXPECT_EQ(CachedOf(engine.get(), base_first ? plain : wake), 0);
    const bool ends_here = !base_first || std::string_view(GetParam()) == "llama";
    const int64_t cached = CachedOf(engine.get(), base_first ? wake : plain);
    EXPECT_LE(cached, 96) << "not what comes after";
    // Others have state there only if the base left a checkpoint, or pages within the window.
    if (ends_here) {
      EXPECT_EQ(cached, 96);
    }
    // Each finds its own again, but another adapter or scale does not.
    EXPECT_EQ(CachedOf(engine.get(), plain), whole);
    EXPECT_EQ(CachedOf(engine.get(), wake), whole);
    for (const Scales& other : {Scales{{"rise", 1}}, Scales{{"wake", 0.5f}}}) {
      const int64_t of_other = CachedOf(engine.get(), With(other, plain.tokens));
      EXPECT_LE(of_other, 96);
      if (ends_here) {
        EXPECT_EQ(of_other, 96);
      }
    }
    EXPECT_EQ(CachedOf(engine.get(), With({{"law", 1}, {"wake", 1}}, plain.tokens)), 0);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

// Each turn is computed as its whole text would be, whatever earlier turns have computed.
TEST_P(EngineInvocationTest, ASessionGoesOnAsItsWholeText) {
  auto engine = StartEngine(SmallEngine(), model_);
  SessionId session = NewSession(engine.get(), "s");
  Tokens text;
  const auto say = [&](const Tokens& tokens) {
    text = Joined({text, tokens});
    const TurnOutcome said = RunTurn(engine.get(), session, With(wake_, tokens));
    ExpectSameAnswer(said, Alone(With(wake_, text)));
    text = Joined({text, said.tokens()});
    return said.started->cached_tokens;
  };
  say(RandomTokens(40, 8));                   // not yet
  say(Joined({kWake, RandomTokens(20, 9)}));  // acts from here on
  const Tokens until_here = text;
  EXPECT_GE(say(RandomTokens(20, 10)), std::ssize(until_here) - 1) << "and goes on";
  say(Joined({RandomTokens(3, 11), kWake, {9}}));  // acts only from here on
  const auto fork = engine->Fork(session, std::ssize(until_here), {});
  ASSERT_THAT(fork, IsOk());
  session = *fork;
  text = until_here;
  say(RandomTokens(5, 12));
  EXPECT_OK(engine->Truncate(session, 41));
  text.resize(41);  // within the invocation
  say(Joined({{2, 1}, RandomTokens(3, 13)}));
  EXPECT_OK(engine->Truncate(session, 20));
  text.resize(20);
  say(RandomTokens(5, 14));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineInvocationTest, ARestoredSessionKnowsWhereItActs) {
  EngineOptions options = SmallEngine();
  options.state_dir = folder_.path() + "/state";
  Tokens text = Joined({RandomTokens(50, 15), kWake, RandomTokens(40, 16)});
  const TurnOutcome first = Alone(With(wake_, text));
  {
    auto engine = StartEngine(options, model_);
    const SessionId session = NewSession(engine.get(), "s");
    ExpectSameAnswer(RunTurn(engine.get(), session, With(wake_, text)), first);
    EXPECT_OK(engine->Park(session));
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
  }
  text = Joined({text, first.tokens(), RandomTokens(7, 17)});
  const TurnOutcome second = Alone(With(wake_, text));
  auto engine = StartEngine(options, model_);
  const auto session = engine->FindSession("", "s");
  ASSERT_THAT(session, IsOk());
  const TurnOutcome said = RunTurn(engine.get(), *session, With(wake_, RandomTokens(7, 17)));
  ExpectSameAnswer(said, second);
  EXPECT_GT(said.started->cached_tokens, 90) << "the state is found, too";
  // The invocation comes again, where nothing is computed yet.
  EXPECT_OK(engine->Park(*session));
  text = Joined({text, second.tokens(), kWake, {9}});
  ExpectSameAnswer(RunTurn(engine.get(), *session, With(wake_, Joined({kWake, {9}}))),
                   Alone(With(wake_, text)));
}

TEST_P(LlamaInvocationTest, BlocksOnDiskAreSharedBeforeIt) {
  EngineOptions options = SmallEngine();
  options.state_dir = folder_.path() + "/state";
  const auto run = [&](const Scales& mix, const Tokens& prompt) {
    auto engine = StartEngine(options, model_);
    const SessionId session = NewSession(engine.get(), "named");
    const TurnOutcome outcome = RunTurn(engine.get(), session, With(mix, prompt));
    ExpectSameAnswer(outcome, Alone(With(mix, prompt)));
    EXPECT_OK(engine->Park(session));
    EXPECT_TRUE(Eventually([&] { return engine->Stats().disk_pending == 0; }));
    EXPECT_OK(engine->Close(session, /*forget=*/true));
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
    return outcome.started->cached_tokens;
  };
  const Tokens prompt = Joined({RandomTokens(160, 18), kWake, RandomTokens(60, 19)});
  EXPECT_EQ(run({}, prompt), 0);
  EXPECT_EQ(run(wake_, prompt), 160) << "the base's";
  EXPECT_GT(run(wake_, prompt), 200) << "its own";
  EXPECT_GT(run({}, prompt), 200);
}

// Turns that compute the same beginning wait for each other, whatever follows.
TEST_P(EngineInvocationTest, TurnsRunTogetherAsEachAlone) {
  EngineOptions options = SmallEngine();
  options.n_threads = 2;
  auto engine = StartEngine(options, model_);
  const Tokens prefix = RandomTokens(100, 20), rest = RandomTokens(20, 21);
  std::vector<TurnOptions> turns;
  for (const Scales& mix :
       {Scales{}, wake_, Scales{{"rise", 1}}, Scales{{"law", 1}, {"rise", 1}}}) {
    for (const Tokens& prompt : {Joined({prefix, kWake, rest}), Joined({prefix, rest}),
                                 Joined({kWake, prefix, rest}), Joined({prefix, rest, kWake})}) {
      turns.push_back(With(mix, prompt));
    }
  }
  std::vector<std::shared_ptr<Turn>> running;
  running.reserve(turns.size());
  for (const TurnOptions& turn : turns) running.push_back(*engine->SubmitOnce("", turn));
  int64_t cached = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    const TurnOutcome outcome = Collect(running[i].get());
    cached += outcome.started->cached_tokens;
    ExpectSameAnswer(outcome, Alone(turns[i]));
  }
  EXPECT_GT(cached, 6 * 96);
  EXPECT_OK(engine->CheckIntegrity());
}

// Readers learn what the base has cached, also where others computed it; not what adapters change.
TEST_P(LlamaInvocationTest, ReadersLearnThePrefix) {
  auto engine = StartEngine(SmallEngine(), model_);
  const Tokens prompt = Joined({RandomTokens(96, 22), kWake, RandomTokens(60, 23)});
  Ask(engine.get(), With(wake_, prompt));
  for (const Scales& mix : {Scales{}, wake_}) {
    const auto feed = engine->WatchPrefixes("", mix, [] {});
    std::vector<PrefixEvent> events;
    EXPECT_TRUE(Eventually([&] {
      std::vector<PrefixEvent> more;
      EXPECT_OK(feed->Take(&more));
      events.insert(events.end(), more.begin(), more.end());
      return events.size() == 6;
    }));
  }
}

TEST_P(LlamaInvocationTest, TwoThatWaitAreRefused) {
  auto engine = StartEngine(SmallEngine(), model_);
  EXPECT_THAT(
      engine->SubmitOnce("", With({{"wake", 1}, {"rise", 1}}, RandomTokens(5, 24))).status(),
      IsError(StatusCode::kInvalidArgument, "can use one"));
  EXPECT_OK(engine->SubmitOnce("", With({{"wake", 1}, {"rise", 0}}, RandomTokens(5, 24))).status());
}

}  // namespace
}  // namespace weft
