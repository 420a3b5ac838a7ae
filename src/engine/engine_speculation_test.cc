// Guesses change nothing but when tokens are computed: whatever is guessed, sessions say the same,
// with the same probabilities, and are left with the same state and the same files.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/files/file_io.h"
#include "engine/engine_test_util.h"
#include "engine/state/hourly_writes.h"
#include "engine/state/session_file.h"

namespace weft {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int kGuesses = 7;

EngineOptions Guessing() {
  EngineOptions options = SmallEngine();
  options.max_guesses = kGuesses;
  return options;
}

EngineOptions Plain() {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kOff;
  return options;
}

// Always right for the first `right` tokens of a guess, then wrong.
auto RightFor(const Tokens& answer, int right) {
  return [answer, right](int, std::span<const int32_t> generated) {
    Tokens guess;
    for (int i = 0; i < kGuesses; ++i) {
      const size_t at = generated.size() + static_cast<size_t>(i);
      const int32_t next = at < answer.size() ? answer[at] : 5;
      guess.push_back(i < right ? next : (next + 1) % static_cast<int32_t>(testing::kTinyVocab));
    }
    return guess;
  };
}

class EngineSpeculationTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
  static std::unique_ptr<Engine> Start(const EngineOptions& options) {
    return StartEngine(options, model());
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineSpeculationTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

TurnOptions Sampled(float temperature, int64_t n_prompt, int64_t max_tokens) {
  TurnOptions turn = Greedy(RandomTokens(n_prompt, 1), max_tokens);
  turn.sampling.temperature = temperature;
  turn.sampling.seed = 17;
  turn.sampling.repetition_penalty = 1.1f;
  turn.sampling.penalty_window = 20;
  turn.sampling.logit_bias = {{40, 1.5f}};
  turn.top_logprobs = 2;
  return turn;
}

TEST_P(EngineSpeculationTest, RejectionAtEveryPositionChangesNothing) {
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    const TurnOptions first = Sampled(temperature, 40, 50);
    TurnOptions second = Sampled(temperature, 3, 20);
    auto plain = Start(Plain());
    const SessionId alone = NewSession(plain.get());
    const TurnOutcome said = RunTurn(plain.get(), alone, first);
    const int64_t computed = plain->Inspect(alone)->n_computed;
    const TurnOutcome then = RunTurn(plain.get(), alone, second);
    for (int right = 0; right <= kGuesses; ++right) {
      auto engine = Start(Guessing());
      const SessionId session = NewSession(engine.get());
      TurnOptions guessed = first;
      guessed.guess = RightFor(said.tokens(), right);
      ExpectSameAnswer(RunTurn(engine.get(), session, guessed), said);
      EXPECT_OK(engine->CheckIntegrity());
      EXPECT_EQ(engine->Inspect(session)->n_computed, computed) << right;
      const EngineStats stats = engine->Stats();
      EXPECT_GT(stats.guessed_tokens, 0);
      EXPECT_EQ(stats.accepted_guesses > 0, right > 0);
      EXPECT_GT(stats.guesses, 0);
      EXPECT_LE(std::ssize(stats.accepted_guesses_at), right);
      second.guess = RightFor(then.tokens(), right);
      ExpectSameAnswer(RunTurn(engine.get(), session, second), then);
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

TEST_P(EngineSpeculationTest, RightGuessesSaveSteps) {
  const TurnOptions turn = Sampled(0, 10, 33);
  const TurnOutcome said = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
  auto engine = Start(Guessing());
  TurnOptions guessed = turn;
  guessed.guess = RightFor(said.tokens(), kGuesses);
  const int64_t before = engine->Stats().steps;
  const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), guessed);
  ExpectSameAnswer(outcome, said);
  const EngineStats stats = engine->Stats();
  // One token of the prompt's step, then up to eight a step; recurrent state stops at pages' ends.
  EXPECT_LE(stats.steps - before, 1 + 4 + 3);
  EXPECT_EQ(stats.accepted_guesses, stats.guessed_tokens);
  EXPECT_EQ(stats.accepted_guesses, 32 - (stats.steps - before - 1));
  // Every guess was right to its end: its first place was right each time.
  ASSERT_FALSE(stats.accepted_guesses_at.empty());
  EXPECT_EQ(stats.accepted_guesses_at[0], stats.guesses);
  EXPECT_LE(std::ssize(stats.accepted_guesses_at), kGuesses);
  EXPECT_EQ(outcome.done().usage.guessed_tokens, stats.guessed_tokens);
  EXPECT_EQ(outcome.done().usage.accepted_guesses, stats.accepted_guesses);
}

TEST_P(EngineSpeculationTest, AnEndInsideAGuessIsTheEnd) {
  const TurnOptions free = Sampled(0, 10, 30);
  const TurnOutcome said = RunAlone(model(), Plain(), std::span(&free, 1))[0];
  std::vector<TurnOptions> turns(4, free);
  turns[0].stop_tokens = {said.tokens()[12]};
  turns[1].max_tokens = 11;
  const std::string text = said.choices[0].text;
  turns[2].stop_strings = {text.substr(text.size() / 2, 2)};
  turns[3].token_mask = Script({said.tokens().begin(), said.tokens().begin() + 9});
  int64_t accepted = 0;
  for (const TurnOptions& turn : turns) {
    const TurnOutcome plain = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
    auto engine = Start(Guessing());
    const SessionId session = NewSession(engine.get());
    TurnOptions guessed = turn;
    guessed.guess = RightFor(said.tokens(), kGuesses);
    const TurnOutcome outcome = RunTurn(engine.get(), session, guessed);
    ExpectSameAnswer(outcome, plain);
    Tokens all = turn.tokens;
    all.insert(all.end(), plain.tokens().begin(), plain.tokens().end());
    EXPECT_EQ(TokensOf(engine.get(), session), all);
    EXPECT_EQ(engine->Inspect(session)->n_computed, std::ssize(all) - 1);
    accepted += outcome.done().usage.accepted_guesses;
    EXPECT_OK(engine->CheckIntegrity());
  }
  EXPECT_GT(accepted, 0);
}

TEST_P(EngineSpeculationTest, ChoicesGuessEachForItself) {
  TurnOptions turn = Sampled(1.0f, 20, 25);
  turn.n_choices = 3;
  const TurnOutcome plain = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
  TurnOptions guessed = turn;
  guessed.guess = [&](int choice, std::span<const int32_t> generated) {
    return RightFor(plain.choices[static_cast<size_t>(choice)].tokens, 2 + choice)(choice,
                                                                                   generated);
  };
  auto engine = Start(Guessing());
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), guessed), plain);
  EXPECT_GT(engine->Stats().accepted_guesses, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

// What a session file says, without the times at which it was written.
std::string SessionSays(std::string_view bytes) {
  auto reader = SessionReader::Open(NewMemorySource(std::as_bytes(std::span(bytes))));
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return "";
  const SessionHead& head = (*reader)->head();
  std::string text = StrCat(head.name, " ", head.state_tokens, " of ", head.tokens.size(), ":");
  for (const TokenId token : head.tokens) text += StrCat(" ", token);
  for (const int64_t checkpoint : head.checkpoints) text += StrCat(" checkpoint ", checkpoint);
  EXPECT_OK(
      (*reader)->ReadState([&](int group, int64_t page, std::span<const std::byte> part) -> Status {
        text += StrCat(" part ", group, " ", page, " ");
        text.append(reinterpret_cast<const char*>(part.data()), part.size());
        return OkStatus();
      }));
  return text;
}

// How much was written, whenever that was.
std::string WrittenSays(const std::string& bytes) {
  auto written = HourlyWrites::From(std::as_bytes(std::span(bytes)));
  return written ? StrCat(written->Total(0)) : bytes;
}

// Sessions and blocks of state in a folder, by the names of their files. The blocks' index, which
// says when they were used, is left out.
std::map<std::string, std::string> FilesIn(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "index") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    const std::string name = std::filesystem::relative(entry.path(), folder).string();
    files[name] = name.ends_with(".session")   ? SessionSays(bytes.str())
                  : name.ends_with("/written") ? WrittenSays(bytes.str())
                                               : bytes.str();
  }
  return files;
}

TEST_P(EngineSpeculationTest, SessionFilesAreTheSame) {
  const TurnOptions turn = Sampled(0.7f, 50, 60);
  const TurnOutcome said = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
  const TestFolder folder;
  std::map<std::string, std::string> plain;
  for (int right = -1; right <= kGuesses; ++right) {
    EngineOptions options = right < 0 ? Plain() : Guessing();
    options.state_dir = StrCat(folder.path(), "/", right);
    std::filesystem::create_directory(options.state_dir);
    auto engine = Start(options);
    const SessionId session = NewSession(engine.get(), "name");
    TurnOptions guessed = turn;
    if (right >= 0) guessed.guess = RightFor(said.tokens(), right);
    ExpectSameAnswer(RunTurn(engine.get(), session, guessed), said);
    EXPECT_OK(engine->Park(session));
    EXPECT_OK(engine->Shutdown(std::chrono::seconds(10)));
    const std::map<std::string, std::string> files = FilesIn(options.state_dir);
    EXPECT_FALSE(files.empty());
    if (right < 0) plain = files;
    ASSERT_EQ(files.size(), plain.size());
    for (const auto& [name, bytes] : plain) {
      const auto same = files.find(name);
      ASSERT_NE(same, files.end()) << name;
      EXPECT_TRUE(same->second == bytes) << name << " with " << right << " right guesses";
    }
  }
}

TEST_P(EngineSpeculationTest, GuessesTakeMemoryFromNobody) {
  // The four pages of each group that each of two sessions needs in the end, and their slots.
  EngineOptions options = Guessing();
  options.prefix_cache = false;
  const StateLayout layout = testing::LayoutOf(*model(), options);
  options.memory_bytes =
      8 * testing::PageBytes(*model(), options) + 2 * layout.slot_bytes + layout.slot_bytes / 2;
  const TurnOptions turn = Sampled(0, 10, 40);
  const TurnOutcome said = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
  auto engine = Start(options);
  TurnOptions guessed = turn;
  guessed.guess = RightFor(said.tokens(), 3);
  const SessionId first = NewSession(engine.get()), second = NewSession(engine.get());
  const auto a = SubmitTurn(engine.get(), first, guessed);
  const auto b = SubmitTurn(engine.get(), second, guessed);
  ExpectSameAnswer(Collect(a.get()), said);
  ExpectSameAnswer(Collect(b.get()), said);
  EXPECT_EQ(engine->Stats().preemptions, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineSpeculationTest, AForkInMidAnswerHoldsWhatWasSaid) {
  const TurnOptions turn = Sampled(0.7f, 30, 200);
  const TurnOutcome said = RunAlone(model(), Plain(), std::span(&turn, 1))[0];
  auto engine = Start(Guessing());
  const SessionId session = NewSession(engine.get());
  TurnOptions guessed = turn;
  guessed.guess = RightFor(said.tokens(), 3);
  const auto running = SubmitTurn(engine.get(), session, guessed);
  TurnOutcome outcome;
  ReadToFirstToken(running.get(), &outcome);
  std::vector<SessionId> forks;
  for (int i = 0; i < 5; ++i) {
    const auto fork = engine->Fork(session, -1, {});
    ASSERT_TRUE(fork.ok()) << fork.status();
    forks.push_back(*fork);
  }
  while (auto event = running->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_EQ(outcome.tokens(), said.tokens());
  for (const SessionId fork : forks) {
    const Tokens before = TokensOf(engine.get(), fork);
    Tokens all = turn.tokens;
    all.insert(all.end(), said.tokens().begin(), said.tokens().end());
    ASSERT_LE(before.size(), all.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), all.begin()));
    TurnOptions next = Sampled(0, 5, 10);
    TurnOptions alone = next;
    alone.tokens = before;
    alone.tokens.insert(alone.tokens.end(), next.tokens.begin(), next.tokens.end());
    EXPECT_EQ(RunTurn(engine.get(), fork, next).tokens(),
              RunAlone(model(), Plain(), std::span(&alone, 1))[0].tokens());
  }
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineSpeculationOptionsTest, AFailedStepLeavesTheSessionSoundBeforeIt) {
  testing::FaultyBackend backend;
  const auto faulty = TinyModel("llama", 1, &backend);
  const TurnOptions turn = Sampled(0, 10, 30);
  const TurnOutcome said = RunAlone(faulty, Plain(), std::span(&turn, 1))[0];
  auto engine = StartEngine(Guessing(), faulty);
  const SessionId session = NewSession(engine.get());
  TurnOptions guessed = turn;
  guessed.guess = RightFor(said.tokens(), 2);
  backend.faults().fail_forward = backend.faults().forwards + 4;
  const TurnOutcome outcome = RunTurn(engine.get(), session, guessed);
  EXPECT_EQ(outcome.done().reason, FinishReason::kError);
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kPoisoned);
  const auto fork = engine->Fork(session, -1, {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  const Tokens sound = TokensOf(engine.get(), *fork);
  ASSERT_GE(sound.size(), turn.tokens.size());
  EXPECT_TRUE(
      std::equal(sound.begin() + std::ssize(turn.tokens), sound.end(), said.tokens().begin()));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineSpeculationOptionsTest, TurnsAndEnginesCanDoWithout) {
  const TurnOptions turn = Sampled(0, 10, 20);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Plain(), std::span(&turn, 1))[0];
  TurnOptions guessed = turn;
  guessed.guess = RightFor(said.tokens(), kGuesses);
  auto plain = StartEngine(Plain());
  ExpectSameAnswer(RunTurn(plain.get(), NewSession(plain.get()), guessed), said);
  EXPECT_EQ(plain->Stats().guessed_tokens, 0);
  auto engine = StartEngine(Guessing());
  TurnOptions none = guessed;
  none.speculation.most = 0;
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), none), said);
  EXPECT_EQ(engine->Stats().guessed_tokens, 0);
  TurnOptions two = guessed;
  two.speculation.most = 2;
  const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), two);
  ExpectSameAnswer(outcome, said);
  EXPECT_EQ(outcome.done().usage.guessed_tokens, 12);
}

TEST(EngineSpeculationOptionsTest, APredictionIsAccountedFor) {
  const TurnOptions turn = Sampled(0, 10, 20);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Plain(), std::span(&turn, 1))[0];
  auto engine = StartEngine(Guessing());
  TurnOptions predicted = turn;
  predicted.prediction = said.tokens();
  const TurnOutcome whole = RunTurn(engine.get(), NewSession(engine.get()), predicted);
  ExpectSameAnswer(whole, said);
  EXPECT_EQ(whole.done().usage.kept_prediction, 20);
  EXPECT_EQ(whole.done().usage.lost_prediction, 0);
  predicted.prediction[10] = predicted.prediction[10] == 7 ? 8 : 7;
  const TurnOutcome changed = RunTurn(engine.get(), NewSession(engine.get()), predicted);
  ExpectSameAnswer(changed, said);
  EXPECT_GE(changed.done().usage.kept_prediction, 10);
  EXPECT_LT(changed.done().usage.kept_prediction, 20);
  EXPECT_EQ(whole.done().usage.lost_prediction, 0);
  predicted.prediction = {100000};
  EXPECT_THAT(engine->Submit(NewSession(engine.get()), predicted).status(),
              IsError(StatusCode::kInvalidArgument, "token of the prediction 100000"));
}

TEST(EngineSpeculationOptionsTest, ForeignTokensAreNoGuesses) {
  const TurnOptions turn = Sampled(0, 10, 20);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Plain(), std::span(&turn, 1))[0];
  auto engine = StartEngine(Guessing());
  TurnOptions guessed = turn;
  guessed.guess = [](int, std::span<const int32_t>) { return Tokens{3, -1, 1 << 30}; };
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), guessed), said);
}

}  // namespace
}  // namespace weft
