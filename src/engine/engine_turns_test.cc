// Turns through the public interface: prompts, options, ends, cancellation, queues.
#include <algorithm>
#include <cmath>
#include <future>
#include <set>

#include "engine/engine_test_util.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {
namespace {

using ::testing::SizeIs;

class EngineTurnsTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options) { engine_ = StartEngine(options); }
  TurnOutcome Once(const TurnOptions& options) {
    auto turn = engine_->SubmitOnce("", options);
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.ok() ? Collect(turn->get()) : TurnOutcome();
  }
  Status Refusal(const TurnOptions& options) { return engine_->SubmitOnce("", options).status(); }
  ~EngineTurnsTest() override {
    if (engine_ != nullptr) {
      EXPECT_OK(engine_->CheckIntegrity());
    }
  }

  std::unique_ptr<Engine> engine_ = StartEngine();
};

// --- prompts -------------------------------------------------------------------------

TEST_F(EngineTurnsTest, WhatIsAppendedContinuesTheSession) {
  const SessionId session = NewSession(engine_.get());
  const std::vector<TurnOptions> turns = {Greedy(RandomTokens(50, 1), 10),
                                          Greedy(RandomTokens(5, 2), 10), Greedy({}, 10)};
  const auto alone = RunAlone(TinyModel("llama"), SmallEngine(), turns);
  int64_t length = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    const int64_t before = length;
    const TurnOutcome said = RunTurn(engine_.get(), session, turns[i]);
    EXPECT_EQ(said.tokens(), alone[i].tokens());
    length += static_cast<int64_t>(turns[i].tokens.size());
    EXPECT_EQ(said.started->prompt_tokens, length);
    // All but the last token of the previous turn is computed; that one is left to compute.
    EXPECT_EQ(said.started->cached_tokens, std::max<int64_t>(0, before - 1));
    EXPECT_EQ(said.done().usage.cached_tokens, said.started->cached_tokens);
    EXPECT_EQ(said.done().usage.prompt_tokens, length);
    EXPECT_EQ(said.done().usage.computed_tokens, length - said.done().usage.cached_tokens);
    EXPECT_EQ(said.done().usage.completion_tokens, 10);
    length += 10;
  }
  EXPECT_EQ(static_cast<int64_t>(TokensOf(engine_.get(), session).size()), length);
}

TEST_F(EngineTurnsTest, AWholeContextKeepsWhatItSharesWithTheSession) {
  const SessionId session = NewSession(engine_.get());
  const TurnOptions first = Greedy(RandomTokens(60, 1), 10);
  RunTurn(engine_.get(), session, first);
  TurnOptions second = Greedy(first.tokens, 10);
  second.tokens.resize(45);
  for (const int32_t token : RandomTokens(20, 2)) second.tokens.push_back(token);
  second.tokens_are_whole_context = true;
  const TurnOutcome said = RunTurn(engine_.get(), session, second);
  EXPECT_EQ(said.started->prompt_tokens, 65);
  EXPECT_EQ(said.started->cached_tokens, 45);
  EXPECT_EQ(said.tokens(),
            RunAlone(TinyModel("llama"), SmallEngine(), std::span(&second, 1))[0].tokens());
  EXPECT_EQ(TokensOf(engine_.get(), session).size(), 75u);
}

TEST_F(EngineTurnsTest, EveryCutOfAPromptGivesTheSameLogits) {
  for (const char* architecture : {"llama", "gemma3"}) {
    std::vector<std::vector<float>> rows;
    for (const std::vector<int64_t>& chunks :
         {std::vector<int64_t>{}, {1}, {64}, {3, 17}, {16, 1, 31}}) {
      TurnOptions options = Greedy(RandomTokens(90, 1), 0);
      options.prompt_chunks = chunks;
      std::vector<float> all;
      int64_t next = 0;
      options.on_prompt_logits = [&](int64_t position, std::span<const float> logits) {
        EXPECT_EQ(position, next++);
        all.insert(all.end(), logits.begin(), logits.end());
      };
      auto engine = StartEngine(SmallEngine(), TinyModel(architecture));
      RunTurn(engine.get(), NewSession(engine.get()), options);
      EXPECT_EQ(next, 90);
      rows.push_back(std::move(all));
    }
    for (const auto& other : rows) EXPECT_TRUE(other == rows[0]) << architecture;
  }
}

TEST_F(EngineTurnsTest, PromptsThatCannotBeTakenAreRefused) {
  EXPECT_THAT(Refusal(Greedy({}, 1)), IsError(StatusCode::kInvalidArgument, "empty prompt"));
  EXPECT_THAT(Refusal(Greedy(RandomTokens(testing::kTinyContext, 1), 1)),
              IsError(StatusCode::kOutOfRange, "available context size of 512"));
  EXPECT_THAT(Refusal(Greedy({testing::kTinyVocab}, 1)),
              IsError(StatusCode::kInvalidArgument, "outside the vocabulary"));
  EXPECT_THAT(Refusal(Greedy({5, -1}, 1)),
              IsError(StatusCode::kInvalidArgument, "outside the vocabulary"));
  // What a session already holds counts too.
  const SessionId session = NewSession(engine_.get());
  RunTurn(engine_.get(), session, Greedy(RandomTokens(500, 1), 0));
  EXPECT_EQ(engine_->Submit(session, Greedy(RandomTokens(12, 2), 1)).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(TokensOf(engine_.get(), session).size(), 500u);
  EXPECT_EQ(engine_->Stats().sessions_ready, 1) << "a refused SubmitOnce leaves no session";
}

TEST_F(EngineTurnsTest, EveryOptionIsValidated) {
  struct Case {
    const char* part;
    std::function<void(TurnOptions*)> spoil;
  };
  const float nan = std::nanf("");
  const Case cases[] = {
      {"max_tokens", [](TurnOptions* o) { o->max_tokens = -2; }},
      {"n must", [](TurnOptions* o) { o->n_choices = 0; }},
      {"n must", [](TurnOptions* o) { o->n_choices = 1000; }},
      {"top_logprobs", [](TurnOptions* o) { o->top_logprobs = -2; }},
      {"top_logprobs", [](TurnOptions* o) { o->top_logprobs = 101; }},
      {"chunk",
       [](TurnOptions* o) {
         o->prompt_chunks = {4, 0};
       }},
      {"stop token", [](TurnOptions* o) { o->stop_tokens = {-1}; }},
      {"stop token", [](TurnOptions* o) { o->stop_tokens = {testing::kTinyVocab}; }},
      {"stop tokens", [](TurnOptions* o) { o->stop_tokens.assign(kMaxStopTokens + 1, 5); }},
      {"stop string", [](TurnOptions* o) { o->stop_strings = {""}; }},
      {"stop strings", [](TurnOptions* o) { o->stop_strings.assign(kMaxStopStrings + 1, "x"); }},
      {"chunks", [](TurnOptions* o) { o->prompt_chunks.assign(kMaxPromptChunks + 1, 1); }},
      {"min_tokens", [](TurnOptions* o) { o->min_tokens = -1; }},
      {"min_tokens", [](TurnOptions* o) { o->min_tokens = o->max_tokens + 1; }},
      {"temperature", [](TurnOptions* o) { o->sampling.temperature = -1; }},
      {"temperature", [&](TurnOptions* o) { o->sampling.temperature = nan; }},
      {"top_k", [](TurnOptions* o) { o->sampling.top_k = -1; }},
      {"top_p", [](TurnOptions* o) { o->sampling.top_p = 0; }},
      {"top_p", [](TurnOptions* o) { o->sampling.top_p = 1.5f; }},
      {"min_p", [](TurnOptions* o) { o->sampling.min_p = -0.1f; }},
      {"repetition_penalty", [](TurnOptions* o) { o->sampling.repetition_penalty = 0; }},
      {"frequency_penalty", [&](TurnOptions* o) { o->sampling.frequency_penalty = nan; }},
      {"presence_penalty", [&](TurnOptions* o) { o->sampling.presence_penalty = nan; }},
      {"penalty_window", [](TurnOptions* o) { o->sampling.penalty_window = -2; }},
      {"logit_bias",
       [](TurnOptions* o) {
         o->sampling.logit_bias = {{-1, 1.0f}};
       }},
      {"logit_bias",
       [](TurnOptions* o) {
         o->sampling.logit_bias.assign(kMaxLogitBiases + 1, {5, 1.0f});
       }},
      {"logit_bias",
       [&](TurnOptions* o) {
         o->sampling.logit_bias = {{5, nan}};
       }},
  };
  for (const Case& one : cases) {
    TurnOptions options = Greedy({5, 6}, 1);
    one.spoil(&options);
    EXPECT_THAT(Refusal(options), IsError(StatusCode::kInvalidArgument, one.part)) << one.part;
  }
  EXPECT_EQ(engine_->Stats().sessions_ready, 0);
}

// --- ends ------------------------------------------------------------------------------

TEST_F(EngineTurnsTest, MaxTokensZeroOnlyTakesThePromptIn) {
  const SessionId session = NewSession(engine_.get());
  const TurnOutcome outcome = RunTurn(engine_.get(), session, Greedy(RandomTokens(20, 1), 0));
  EXPECT_TRUE(outcome.started.has_value());
  EXPECT_THAT(outcome.tokens(), SizeIs(0));
  EXPECT_EQ(outcome.done().reason, FinishReason::kLength);
  EXPECT_EQ(engine_->Inspect(session)->n_computed, 20);
}

TEST_F(EngineTurnsTest, AFullContextEndsTheTurn) {
  const TurnOutcome outcome = Once(Greedy(RandomTokens(500, 1), -1));
  EXPECT_EQ(outcome.done().reason, FinishReason::kContext);
  EXPECT_THAT(outcome.tokens(), SizeIs(12));
  // A limit that is met at the same token was the client's own wish.
  EXPECT_EQ(Once(Greedy(RandomTokens(500, 1), 12)).done().reason, FinishReason::kLength);
  EXPECT_EQ(Once(Greedy(RandomTokens(500, 1), 13)).done().reason, FinishReason::kContext);
  // A prompt may fill the context if nothing is to be generated.
  EXPECT_OK(Once(Greedy(RandomTokens(512, 2), 0)).done().status);
}

TEST_F(EngineTurnsTest, EndTokensEndATurnUnlessIgnored) {
  const int32_t eos = TinyModel("llama")->tokenizer()->eos();
  TurnOptions options = Greedy({5, 6}, 10);
  options.ignore_eos = false;
  options.token_mask = Script({100, 101, eos, 102});
  const TurnOutcome outcome = Once(options);
  EXPECT_EQ(outcome.done().reason, FinishReason::kStop);
  EXPECT_EQ(outcome.done().stop_token, eos);
  EXPECT_THAT(outcome.tokens(), ::testing::ElementsAre(100, 101, eos));
  EXPECT_EQ(outcome.done().usage.completion_tokens, 3);
  // With ignore_eos it is banned: a script that allows only it leaves no token.
  options.ignore_eos = true;
  EXPECT_THAT(Once(options).done().status, IsError(StatusCode::kInvalidArgument, "banned"));
  // An end token that the caller lists itself still ends the turn.
  options.ignore_eos = false;
  options.stop_tokens = {101};
  EXPECT_EQ(Once(options).done().stop_token, 101);
}

TEST_F(EngineTurnsTest, AStopStringAcrossTokensIsNeverGivenOut) {
  TurnOptions options = Greedy({5, 6}, 30);
  options.stop_strings = {"</end>", "STOP"};
  options.token_mask = Script(Bytes("hello </en</end> more"));
  TurnOutcome outcome = Once(options);
  EXPECT_EQ(outcome.done().reason, FinishReason::kStopString);
  EXPECT_EQ(outcome.done().stop_string, "</end>");
  EXPECT_EQ(outcome.choices[0].text, "hello </en");
  EXPECT_EQ(outcome.done().usage.completion_tokens, 16);
  // Text held back for a stop string that did not come is released at the end.
  options.token_mask = Script(Bytes("hello </en"));
  options.max_tokens = 10;
  outcome = Once(options);
  EXPECT_EQ(outcome.done().reason, FinishReason::kLength);
  EXPECT_EQ(outcome.choices[0].text, "hello </en");
  EXPECT_EQ(outcome.done().text, "</en");
}

TEST_F(EngineTurnsTest, ControlTokensAreInTheTextOfATurnThatAsksForThem) {
  const Tokenizer& tokenizer = *TinyModel("llama")->tokenizer();
  std::vector<int32_t> reply = Bytes("ab");
  reply.insert(reply.begin() + 1, tokenizer.bos());
  reply.push_back(tokenizer.eos());
  TurnOptions options = Greedy({5, 6}, 30);
  options.token_mask = Script(reply);
  EXPECT_EQ(Once(options).choices[0].text, "ab");
  options.shown_control_tokens = {tokenizer.bos()};
  EXPECT_EQ(Once(options).choices[0].text,
            "a" + tokenizer.Piece(tokenizer.bos(), /*render_special=*/true) + "b");
}

// --- choices, numbers, randomness ---------------------------------------------------------

TEST_F(EngineTurnsTest, ChoicesForkAfterThePromptAndReproduce) {
  TurnOptions options = Greedy(RandomTokens(60, 1), 12);
  options.sampling = SamplingOptions();
  options.sampling.seed = 7;
  options.n_choices = 4;
  const SessionId session = NewSession(engine_.get());
  const TurnOutcome outcome = RunTurn(engine_.get(), session, options);
  ASSERT_THAT(outcome.choices, SizeIs(4));
  std::set<std::vector<int32_t>> different;
  for (const ChoiceOutcome& choice : outcome.choices) {
    EXPECT_THAT(choice.tokens, SizeIs(12));
    different.insert(choice.tokens);
  }
  EXPECT_GT(different.size(), 1u);
  // The first choice equals the answer of a turn with one choice, and the session keeps it.
  TurnOptions single = options;
  single.n_choices = 1;
  EXPECT_EQ(RunAlone(TinyModel("llama"), SmallEngine(), std::span(&single, 1))[0].tokens(),
            outcome.tokens());
  std::vector<int32_t> kept = options.tokens;
  kept.insert(kept.end(), outcome.tokens().begin(), outcome.tokens().end());
  EXPECT_EQ(TokensOf(engine_.get(), session), kept);
  EXPECT_EQ(engine_->Stats().sessions_ready, 1) << "the forks are gone";
  const TurnOutcome again = Once(options);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(again.choices[i].tokens, outcome.choices[i].tokens);
}

TEST_F(EngineTurnsTest, TheSeedIsReportedAndReproducesTheTurn) {
  TurnOptions options = Greedy(RandomTokens(30, 1), 30);
  options.sampling = SamplingOptions();
  options.sampling.temperature = 2;
  const TurnOutcome first = Once(options), second = Once(options);
  EXPECT_NE(first.started->seed, second.started->seed);
  EXPECT_NE(first.tokens(), second.tokens());
  options.sampling.seed = first.started->seed;
  EXPECT_EQ(Once(options).tokens(), first.tokens());
}

TEST_F(EngineTurnsTest, LogprobsAreThoseOfTheModel) {
  TurnOptions options = Greedy(RandomTokens(20, 1), 5);
  options.top_logprobs = 3;
  const TurnOutcome outcome = Once(options);
  for (const TokenEvent& event : outcome.choices[0].events) {
    ASSERT_THAT(event.alternatives, SizeIs(3));
    EXPECT_EQ(event.alternatives[0].token, event.token) << "greedy takes the best";
    EXPECT_EQ(event.alternatives[0].logprob, event.logprob);
    EXPECT_GE(event.alternatives[0].logprob, event.alternatives[1].logprob);
    EXPECT_LT(event.logprob, 0);
  }
  options.top_logprobs = 0;
  const TurnOutcome chosen_only = Once(options);
  EXPECT_THAT(chosen_only.choices[0].events[0].alternatives, SizeIs(0));
  EXPECT_EQ(chosen_only.choices[0].events[0].logprob, outcome.choices[0].events[0].logprob);
  // The probabilities of the whole vocabulary add up to one.
  options.max_tokens = 1;
  options.on_prompt_logits = [](int64_t, std::span<const float> row) {
    EXPECT_EQ(static_cast<int64_t>(row.size()), testing::kTinyVocab);
  };
  EXPECT_OK(Once(options).done().status);
}

TEST_F(EngineTurnsTest, PromptLogprobsAreThoseOfGeneratingTheSameTokens) {
  TurnOptions say = Greedy(RandomTokens(20, 1), 10);
  say.top_logprobs = 0;
  const TurnOutcome said = Once(say);
  TurnOptions score = Greedy(say.tokens, 0);
  score.tokens.insert(score.tokens.end(), said.tokens().begin(), said.tokens().end());
  score.prompt_logprobs = true;
  score.top_logprobs = 2;
  const TurnOutcome scored = Once(score);
  const auto& entries = scored.started->prompt_logprobs;
  ASSERT_THAT(entries, SizeIs(30));
  EXPECT_EQ(entries[0].token.logprob, 0);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(entries[i].token.token, score.tokens[i]);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(entries[20 + i].token.logprob, said.choices[0].events[i].logprob);
    EXPECT_TRUE(entries[20 + i].is_greedy);
    EXPECT_THAT(entries[20 + i].alternatives, SizeIs(2));
  }
  EXPECT_EQ(scored.started->cached_tokens, 0) << "such a turn computes its prompt anew";
}

TEST_F(EngineTurnsTest, AMaskDecidesWhatMayBeSaid) {
  TurnOptions options = Greedy({5, 6}, 4);
  options.sampling = SamplingOptions();
  options.token_mask = Script({300, 301, 302, 303});
  EXPECT_THAT(Once(options).tokens(), ::testing::ElementsAre(300, 301, 302, 303));
}

// --- queue, priorities, deadlines -----------------------------------------------------------

TEST_F(EngineTurnsTest, AFullQueueRefuses) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_queued = 2;
  options.max_pending_events = 2;  // the first turn stays until it is read
  Start(options);
  std::vector<std::shared_ptr<Turn>> turns;
  for (uint64_t i = 0; i < 3; ++i) {
    auto turn = engine_->SubmitOnce("", Greedy(RandomTokens(10, i), 10));
    ASSERT_TRUE(turn.ok()) << turn.status();
    turns.push_back(*turn);
  }
  EXPECT_THAT(Refusal(Greedy({5}, 1)), IsError(StatusCode::kResourceExhausted, "queue"));
  EXPECT_EQ(engine_->Stats().turns_refused, 1);
  const auto check = [this](const char* tenant) {
    std::promise<Status> answer;
    engine_->CheckQueue(tenant, [&](const Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  };
  EXPECT_THAT(check(""), IsError(StatusCode::kResourceExhausted, "queue"));
  EXPECT_EQ(check("another").code(), StatusCode::kOk);
  for (auto& turn : turns) EXPECT_THAT(Collect(turn.get()).tokens(), SizeIs(10));
  EXPECT_TRUE(engine_->SubmitOnce("", Greedy({5}, 1)).ok());
}

TEST_F(EngineTurnsTest, HigherPriorityIsAdmittedFirst) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_pending_events = 2;
  Start(options);
  auto first = *engine_->SubmitOnce("", Greedy(RandomTokens(10, 1), 10));
  std::vector<int> order;
  std::vector<std::shared_ptr<Turn>> turns;
  for (const int priority : {0, 5, 1, 5}) {
    TurnOptions waiting = Greedy(RandomTokens(10, 2), 1);
    waiting.priority = priority;
    const int index = static_cast<int>(turns.size());
    waiting.token_mask = [&order, index](int) {  // called on the engine thread at admission
      order.push_back(index);
      return nullptr;
    };
    turns.push_back(*engine_->SubmitOnce("", waiting));
  }
  Collect(first.get());
  for (auto& turn : turns) Collect(turn.get());
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 2, 0));
}

TEST_F(EngineTurnsTest, ADeadlineEndsATurnWhereverItIs) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_pending_events = 2;
  Start(options);
  TurnOptions running = Greedy(RandomTokens(10, 1), 400);
  TurnOptions queued = running;
  running.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  queued.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  const SessionId session = NewSession(engine_.get());
  auto first = SubmitTurn(engine_.get(), session, running);
  auto second = *engine_->SubmitOnce("", queued);
  const TurnOutcome late = Collect(second.get());
  EXPECT_FALSE(late.started.has_value());
  EXPECT_EQ(late.done().status.code(), StatusCode::kDeadlineExceeded);
  // It is paused because nobody reads, and still ends in time.
  EXPECT_TRUE(Eventually([&] { return engine_->Stats().turns_failed == 2; }));
  EXPECT_EQ(Collect(first.get()).done().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(StateOf(engine_.get(), session), SessionState::kReady);
}

// --- cancel -----------------------------------------------------------------------------------

TEST_F(EngineTurnsTest, ACancelledTurnInTheQueueLeavesItsSessionAsItWas) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_pending_events = 2;
  Start(options);
  const SessionId session = NewSession(engine_.get());
  RunTurn(engine_.get(), session, Greedy(RandomTokens(30, 1), 0));
  const auto before = TokensOf(engine_.get(), session);
  auto first = *engine_->SubmitOnce("", Greedy(RandomTokens(10, 2), 100));
  TurnOptions whole = Greedy(RandomTokens(10, 3), 10);
  whole.tokens_are_whole_context = true;
  auto queued = SubmitTurn(engine_.get(), session, whole);
  queued->Cancel();
  const TurnOutcome outcome = Collect(queued.get());
  EXPECT_EQ(outcome.done().reason, FinishReason::kCancelled);
  EXPECT_FALSE(outcome.started.has_value());
  EXPECT_EQ(TokensOf(engine_.get(), session), before);
  EXPECT_EQ(StateOf(engine_.get(), session), SessionState::kReady);
  EXPECT_EQ(engine_->Stats().turns_cancelled, 1);
}

TEST_F(EngineTurnsTest, ATurnCancelledInPrefillLeavesItsSessionAsItWas) {
  testing::FaultyBackend slow;
  for (const bool whole_context : {false, true}) {
    engine_ = StartEngine(SmallEngine(), TinyModel("llama", 1, &slow));
    slow.faults().step_delay_us = 0;
    const SessionId session = NewSession(engine_.get());
    const TurnOptions first = Greedy(RandomTokens(40, 1), 10);
    RunTurn(engine_.get(), session, first);
    const auto before = TokensOf(engine_.get(), session);
    slow.faults().step_delay_us = 5000;
    TurnOptions second = Greedy(RandomTokens(300, 2), 10);
    second.tokens_are_whole_context = whole_context;
    second.prompt_chunks = {1};
    if (whole_context) std::copy_n(first.tokens.begin(), 20, second.tokens.begin());
    auto turn = SubmitTurn(engine_.get(), session, second);
    const int64_t steps = engine_->Stats().steps;
    ASSERT_TRUE(Eventually([&] { return engine_->Stats().steps > steps + 2; }));
    turn->Cancel();
    const TurnOutcome outcome = Collect(turn.get());
    EXPECT_EQ(outcome.done().reason, FinishReason::kCancelled);
    EXPECT_FALSE(outcome.started.has_value());
    const TurnUsage& usage = outcome.done().usage;
    EXPECT_GT(usage.computed_tokens, 0);
    EXPECT_LT(usage.cached_tokens + usage.computed_tokens, usage.prompt_tokens);
    EXPECT_EQ(TokensOf(engine_.get(), session), before);
    slow.faults().step_delay_us = 0;
    // It continues as if the cancelled turn had never existed.
    const std::vector<TurnOptions> turns = {first, Greedy(RandomTokens(5, 3), 10)};
    EXPECT_EQ(RunTurn(engine_.get(), session, turns[1]).tokens(),
              RunAlone(TinyModel("llama"), SmallEngine(), turns)[1].tokens());
    EXPECT_OK(engine_->CheckIntegrity());
  }
  engine_.reset();  // before its backend
}

TEST_F(EngineTurnsTest, ATurnCancelledWhileDecodingKeepsWhatItSaid) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  Start(options);
  const SessionId session = NewSession(engine_.get());
  const TurnOptions turn_options = Greedy(RandomTokens(20, 1), 400);
  auto turn = SubmitTurn(engine_.get(), session, turn_options);
  TurnOutcome outcome;
  ReadToFirstToken(turn.get(), &outcome);
  turn->Cancel();
  turn->Cancel();
  while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_EQ(outcome.done().reason, FinishReason::kCancelled);
  EXPECT_EQ(StateOf(engine_.get(), session), SessionState::kReady);
  std::vector<int32_t> kept = turn_options.tokens;
  kept.insert(kept.end(), outcome.tokens().begin(), outcome.tokens().end());
  EXPECT_EQ(TokensOf(engine_.get(), session), kept);
  EXPECT_FALSE(turn->Next().has_value()) << "after the end comes nothing more";
}

TEST_F(EngineTurnsTest, DroppingTheHandleCancels) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  Start(options);
  auto turn = *engine_->SubmitOnce("", Greedy(RandomTokens(20, 1), 400));
  turn.reset();
  EXPECT_TRUE(Eventually([&] {
    const EngineStats stats = engine_->Stats();
    return stats.turns_cancelled == 1 && stats.sessions_running + stats.sessions_ready == 0;
  }));
}

TEST_F(EngineTurnsTest, ASecondTurnCanFollowTheLastEventAtOnce) {
  const SessionId session = NewSession(engine_.get());
  for (int i = 0; i < 100; ++i) {
    auto turn = SubmitTurn(engine_.get(), session, Greedy({7}, 1));
    ASSERT_NE(turn, nullptr);
    while (auto event = turn->Next()) {
      if (std::holds_alternative<DoneEvent>(*event)) break;  // not read to nullopt
    }
  }
  EXPECT_EQ(engine_->Stats().turns_cancelled, 0);
  EXPECT_EQ(engine_->Stats().turns_finished, 100);
}

TEST_F(EngineTurnsTest, TheReadyCallbackWakesAConsumerThatPolls) {
  std::atomic<int> calls{0};
  auto turn = *engine_->SubmitOnce("", Greedy(RandomTokens(20, 1), 20));
  turn->SetReadyCallback([&] { ++calls; });
  TurnOutcome outcome;
  bool finished = false;
  while (!finished) {
    ASSERT_TRUE(Eventually([&] { return calls > 0; }));
    calls = 0;
    while (auto event = turn->TryNext(&finished)) testing::AddEvent(*std::move(event), &outcome);
    if (finished) break;
  }
  EXPECT_THAT(outcome.tokens(), SizeIs(20));
}

// --- a stalled consumer ------------------------------------------------------------------------

TEST_F(EngineTurnsTest, AStalledConsumerPausesItsTurnAloneAndResumesItByReading) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 8;
  Start(options);
  const TurnOptions turn_options = Greedy(RandomTokens(20, 1), 200);
  const SessionId session = NewSession(engine_.get());
  auto stalled = SubmitTurn(engine_.get(), session, turn_options);
  // Others are served meanwhile.
  EXPECT_THAT(Once(Greedy(RandomTokens(30, 2), 100)).tokens(), SizeIs(100));
  EXPECT_LE(engine_->Inspect(session)->n_tokens, 20 + 8) << "it made no more than fits its queue";
  EXPECT_EQ(Collect(stalled.get()).tokens(),
            RunAlone(TinyModel("llama"), SmallEngine(), std::span(&turn_options, 1))[0].tokens());
}

TEST_F(EngineTurnsTest, AConsumerThatNeverReadsIsCut) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 8;
  options.stalled_consumer_timeout = std::chrono::milliseconds(50);
  Start(options);
  const SessionId session = NewSession(engine_.get());
  const auto begin = std::chrono::steady_clock::now();
  auto stalled = SubmitTurn(engine_.get(), session, Greedy(RandomTokens(20, 1), 200));
  EXPECT_TRUE(Eventually([&] { return StateOf(engine_.get(), session) == SessionState::kReady; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(45));
  const TurnOutcome outcome = Collect(stalled.get());
  EXPECT_THAT(outcome.done().status, IsError(StatusCode::kResourceExhausted, "did not read"));
  EXPECT_LE(outcome.tokens().size(), 8u);
}

TEST_F(EngineTurnsTest, AConsumerThatDoesNotReadGivesItsPlaceToWhoWaits) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 8;
  options.max_running = 1;
  options.stalled_consumer_timeout = std::chrono::hours(1);
  options.stalled_while_others_wait = std::chrono::milliseconds(20);
  Start(options);
  const SessionId session = NewSession(engine_.get());
  auto stalled = SubmitTurn(engine_.get(), session, Greedy(RandomTokens(20, 1), 200));
  EXPECT_TRUE(Eventually([&] { return engine_->Inspect(session)->n_tokens >= 20 + 5; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(StateOf(engine_.get(), session), SessionState::kRunning) << "nobody waits";
  EXPECT_EQ(engine_->TurnsWaiting(), 0);
  EXPECT_THAT(Once(Greedy(RandomTokens(30, 2), 10)).tokens(), SizeIs(10));
  EXPECT_THAT(Collect(stalled.get()).done().status,
              IsError(StatusCode::kResourceExhausted, "did not read"));
  EXPECT_GE(engine_->Inspect(session)->n_tokens, 20) << "the session stays";
}

}  // namespace
}  // namespace weft
