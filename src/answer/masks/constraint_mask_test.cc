// Constrained answers: they always conform, have the same bits whatever runs beside them, and are
// the same whether forced tokens are taken together or one by one.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer/masks/constraint_mask.h"
#include "constraint/constraint_cache.h"
#include "engine/engine_test_util.h"
#include "engine/loading/token_table_of.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/constraint.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kSchema[] = R"({
  "type": "object",
  "properties": {
    "colour": {"enum": ["red", "green", "blue"]},
    "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
              "minItems": 1, "maxItems": 4},
    "note": {"type": "string", "maxLength": 6}
  },
  "required": ["colour", "sizes"],
  "additionalProperties": false
})";

// Takes forced tokens one by one, each from a row of its own.
class OneByOne : public TokenMask {
 public:
  explicit OneByOne(std::unique_ptr<TokenMask> inner) : inner_(std::move(inner)) {}
  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override {
    inner_->Apply(generated, allowed);
    if (was_drawn_) forced_ = inner_->Forced(generated);
    was_drawn_ = forced_.empty();
    if (was_drawn_) return;
    std::fill(allowed.begin(), allowed.end(), 0u);
    const auto token = static_cast<size_t>(forced_.front());
    allowed[token / 32] |= uint32_t{1} << (token % 32);
    forced_.erase(forced_.begin());
  }

 private:
  const std::unique_ptr<TokenMask> inner_;
  bool was_drawn_ = false;
  std::vector<int32_t> forced_;
};

TokenMaskFactory Mask(const Model& model, const ConstraintSpec& spec) {
  auto made = MakeConstraint(model, spec);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

// Counts the tokens requested from the model.
class Counting : public TokenMask {
 public:
  Counting(std::unique_ptr<TokenMask> inner, int* asked)
      : inner_(std::move(inner)), asked_(*asked) {}
  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override {
    ++asked_;
    inner_->Apply(generated, allowed);
  }
  std::vector<int32_t> Forced(std::span<const int32_t> generated) override {
    return inner_->Forced(generated);
  }

 private:
  const std::unique_ptr<TokenMask> inner_;
  int& asked_;
};

TokenMaskFactory Counted(const TokenMaskFactory& mask, int* asked) {
  return [=](int choice) { return std::make_unique<Counting>(mask(choice), asked); };
}

TurnOptions Random(const TokenMaskFactory& mask, uint64_t seed, int64_t max_tokens = 300) {
  TurnOptions options = Greedy(RandomTokens(20, 3), max_tokens);
  options.ignore_eos = false;
  options.sampling.temperature = 1;
  options.sampling.seed = seed;
  options.token_mask = mask;
  return options;
}

void ExpectValid(const Model& model, const ConstraintSpec& spec, const ChoiceOutcome& answer) {
  const auto compiled = CompileConstraint(model, spec);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  constraint::ConstraintState state = (*compiled)->Begin();
  EXPECT_TRUE(state.AdvanceText(answer.text)) << answer.text;
  if (answer.done->reason == FinishReason::kStop) {
    EXPECT_TRUE(state.CanEnd()) << answer.text;
  } else {
    EXPECT_EQ(answer.done->reason, FinishReason::kLength);
  }
}

TEST(EngineConstraint, WhateverIsDrawnIsWhatTheSchemaAsksFor) {
  const auto model = TinyModel("llama");
  const ConstraintSpec spec{.text = kSchema};
  const TokenMaskFactory mask = Mask(*model, spec);
  int whole = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const TurnOptions options = Random(mask, seed);
    const TurnOutcome outcome = RunAlone(model, SmallEngine(), std::span(&options, 1))[0];
    ExpectValid(*model, spec, outcome.choices[0]);
    whole += outcome.done().reason == FinishReason::kStop;
  }
  EXPECT_EQ(whole, 30);
}

TEST(EngineConstraint, ForcedTokensAreTheSameTogetherAsOneByOne) {
  for (const char* const architecture : {"llama", "gemma3", "recurrent-llama"}) {
    const auto model = TinyModel(architecture);
    const TokenMaskFactory mask = Mask(*model, {.text = kSchema});
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      int asked = 0;
      const TurnOptions together = Random(Counted(mask, &asked), seed);
      TurnOptions single = together;
      single.token_mask = [mask](int choice) { return std::make_unique<OneByOne>(mask(choice)); };
      const TurnOutcome first = RunAlone(model, SmallEngine(), std::span(&together, 1))[0];
      const TurnOutcome second = RunAlone(model, SmallEngine(), std::span(&single, 1))[0];
      EXPECT_EQ(first.tokens(), second.tokens()) << architecture << " " << seed;
      EXPECT_LT(asked, static_cast<int>(first.tokens().size()));
    }
  }
}

TEST(EngineConstraint, NeighboursAndChoicesChangeNothing) {
  const auto model = TinyModel("llama");
  const TokenMaskFactory json = Mask(*model, {.text = kSchema});
  const TokenMaskFactory number =
      Mask(*model, {.kind = ConstraintSpec::Kind::kRegex, .text = "-?[1-9][0-9]{0,30}"});
  std::vector<TurnOptions> turns;
  for (uint64_t seed = 1; seed <= 6; ++seed) turns.push_back(Random(json, seed));
  for (uint64_t seed = 1; seed <= 3; ++seed) turns.push_back(Random(number, seed));
  turns.push_back(Random(nullptr, 9, 60));
  turns.push_back(Random(json, 11));
  turns.back().n_choices = 3;
  std::vector<TurnOutcome> alone;
  alone.reserve(turns.size());
  for (const TurnOptions& turn : turns) {
    alone.push_back(RunAlone(model, SmallEngine(), std::span(&turn, 1))[0]);
  }
  auto engine = Engine::Start(model, SmallEngine());
  ASSERT_TRUE(engine.ok());
  std::vector<std::shared_ptr<Turn>> running;
  for (const TurnOptions& turn : turns) {
    auto submitted = (*engine)->SubmitOnce("", turn);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    running.push_back(*std::move(submitted));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const TurnOutcome beside = Collect(running[i].get());
    ASSERT_EQ(beside.choices.size(), alone[i].choices.size());
    for (size_t choice = 0; choice < beside.choices.size(); ++choice) {
      EXPECT_EQ(beside.choices[choice].tokens, alone[i].choices[choice].tokens) << i;
    }
  }
}

TEST(EngineConstraint, AnAnswerThatIsCutIsAValidBeginning) {
  const auto model = TinyModel("llama");
  const ConstraintSpec spec{.text = kSchema};
  const TokenMaskFactory mask = Mask(*model, spec);
  for (int64_t most = 1; most <= 12; ++most) {
    const TurnOptions options = Random(mask, 5, most);
    const TurnOutcome outcome = RunAlone(model, SmallEngine(), std::span(&options, 1))[0];
    EXPECT_EQ(outcome.done().reason, FinishReason::kLength);
    EXPECT_EQ(static_cast<int64_t>(outcome.tokens().size()), most);
    ExpectValid(*model, spec, outcome.choices[0]);
  }
}

TEST(EngineConstraint, GoesOnWithWhatIsBegun) {
  const auto model = TinyModel("llama");
  const ConstraintSpec spec{.kind = ConstraintSpec::Kind::kChoice,
                            .choices = {"one apple", "two pears", "one plum"}};
  const auto made = MakeConstraint(*model, spec, "one p");
  ASSERT_TRUE(made.ok()) << made.status();
  const TurnOptions options = Random(*made, 1);
  EXPECT_EQ(RunAlone(model, SmallEngine(), std::span(&options, 1))[0].choices[0].text, "lum");
  const auto wrong = MakeConstraint(*model, spec, "one kiwi");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(std::string(Message(wrong.status())), HasSubstr("from byte 4 on"));
}

TEST(EngineConstraint, LogProbabilitiesAreOfTheDrawWhereThatIsAsked) {
  const auto model = TinyModel("llama");
  TurnOptions options =
      Random(Mask(*model, {.kind = ConstraintSpec::Kind::kRegex, .text = "[ab]{6}"}), 4);
  options.top_logprobs = 5;
  options.logprobs_of_draw = true;
  const TurnOutcome outcome = RunAlone(model, SmallEngine(), std::span(&options, 1))[0];
  for (size_t i = 0; i < 6; ++i) {
    const TokenEvent& event = outcome.choices[0].events[i];
    ASSERT_LE(event.alternatives.size(), 5u);
    double sum = 0;
    for (const TokenLogprob& each : event.alternatives) {
      sum += std::exp(static_cast<double>(each.logprob));
    }
    EXPECT_NEAR(sum, 1.0, 1e-3) << i;  // no other token was possible
  }
}

TEST(EngineConstraint, WhatCannotBeEnforcedIsRefused) {
  const auto model = TinyModel("llama");
  const auto refused = MakeConstraint(*model, {.text = R"({"type": "string", "format": "regex"})"});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("format"));
  EXPECT_FALSE(MakeConstraint(*model, {.kind = ConstraintSpec::Kind::kGrammar, .text = "x"}).ok());
}

// Allows one token, and then nothing.
class OneOnly : public TokenMask {
 public:
  explicit OneOnly(absl::Status problem) : problem_(std::move(problem)) {}
  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override {
    if (!generated.empty()) std::fill(allowed.begin(), allowed.end(), 0u);
  }
  absl::Status Problem() const override { return problem_; }

 private:
  const absl::Status problem_;
};

TEST(EngineConstraint, WhereNothingMayComeTheReasonIsTold) {
  const auto model = TinyModel("llama");
  const Status limit = InvalidArgument("the grammar takes more than is allowed");
  for (const Status& problem : {limit, OkStatus()}) {
    const TurnOptions options = Random([&](int) { return std::make_unique<OneOnly>(problem); }, 1);
    const TurnOutcome outcome = RunAlone(model, SmallEngine(), std::span(&options, 1))[0];
    EXPECT_EQ(outcome.tokens().size(), 1u);
    EXPECT_EQ(outcome.done().reason, FinishReason::kError);
    EXPECT_EQ(outcome.done().status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(outcome.done().status),
                HasSubstr(problem.ok() ? "no token may come next" : "the grammar takes more"));
  }
}

TEST(EngineConstraint, WhatAMaskDidNotAllowIsNotFollowed) {
  const auto model = TinyModel("llama");
  const TokenMaskFactory made =
      Mask(*model, {.kind = ConstraintSpec::Kind::kRegex, .text = "abcdefgh"});
  const auto mask = made(0);
  std::vector<uint32_t> allowed(static_cast<size_t>(model->tokenizer()->vocab_size()) / 32 + 1);
  mask->Apply({}, allowed);
  EXPECT_THAT(allowed, Contains(::testing::Ne(0u)));
  int32_t other = 0;
  while ((allowed[static_cast<size_t>(other) / 32] >> (other % 32) & 1) != 0) ++other;
  for (const std::vector<int32_t>& taken : {std::vector<int32_t>{other}, {other, other}}) {
    mask->Apply(taken, allowed);
    EXPECT_THAT(allowed, ::testing::Each(0u));
    EXPECT_THAT(mask->Forced(taken), ::testing::IsEmpty());
  }
}

TEST(EngineConstraint, TheCacheLooksAfterWhatGrows) {
  const auto model = TinyModel("llama");
  constraint::ConstraintCache cache([&] { return TokenTableOf(*model->tokenizer()); },
                                    {.max_kept = 8, .max_bytes = 4 << 20, .min_share = 256 << 10});
  const auto get = [&](int i) {
    const std::string pattern = StrCat("[a-z]{", 20'000 + i, "}");
    auto made = cache.Get("", pattern, [&](std::shared_ptr<const constraint::TokenTable> table) {
      return constraint::Constraint::Regex(pattern, {}, std::move(table));
    });
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const auto follow = [](constraint::ConstraintState* state, int count) {
    std::vector<uint32_t> mask(state->constraint().tokens().mask_words());
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(state->AdvanceText("abcdefgh"));
      state->FillMask(mask);
    }
  };
  // Nothing follows these any more, but they have grown since they were compiled.
  std::vector<std::weak_ptr<const constraint::Constraint>> grown;
  grown.reserve(5);
  for (int i = 0; i < 5; ++i) grown.push_back(get(i));
  for (int i = 0; i < 5; ++i) {
    constraint::ConstraintState state = get(i)->Begin();
    follow(&state, 1000);
  }
  const auto sum = [&] {
    int64_t bytes = 0;
    for (const auto& one : grown) bytes += one.lock()->bytes();
    return bytes;
  };
  EXPECT_GT(sum(), 4 << 20);
  for (int i = 0; i < 64; ++i) get(4);
  EXPECT_LE(sum(), 4 << 20);
  EXPECT_TRUE(get(0)->Begin().AdvanceText("abc"));
  // Constraints in use share the cache.
  std::vector<constraint::ConstraintState> states;
  for (int i = 5; i < 13; ++i) states.push_back(get(i)->Begin());
  for (constraint::ConstraintState& state : states) {
    follow(&state, 100);
    EXPECT_LE(state.constraint().bytes(), 2 << 20);
  }
}

TEST(EngineConstraint, TenantsHaveConstraintsOfTheirOwn) {
  const auto model = TinyModel("llama");
  const ConstraintSpec spec{.kind = ConstraintSpec::Kind::kRegex, .text = "[a-f]{3}"};
  const auto of = [&](std::string_view tenant) { return *CompileConstraint(*model, spec, tenant); };
  const auto first = of("a");
  EXPECT_EQ(of("a"), first);
  EXPECT_NE(of("b"), first) << "what a uses could be measured";
}

TEST(EngineConstraint, ATenantOfManyConstraintsLeavesOthersTheirs) {
  const auto model = TinyModel("llama");
  constraint::ConstraintCache cache([&] { return TokenTableOf(*model->tokenizer()); },
                                    {.max_kept = 8});
  int n_made = 0;
  const auto get = [&](std::string_view tenant, int i) {
    const std::string pattern = StrCat("[a-z]{", i, "}");
    const auto made = [&](std::shared_ptr<const constraint::TokenTable> table) {
      ++n_made;
      return constraint::Constraint::Regex(pattern, {}, std::move(table));
    };
    EXPECT_TRUE(cache.Get(tenant, pattern, made).ok());
  };
  for (int i = 1; i <= 4; ++i) get("b", i);
  for (int i = 1; i <= 100; ++i) get("a", i);
  EXPECT_EQ(n_made, 104);
  for (int i = 1; i <= 4; ++i) get("b", i);
  for (int i = 97; i <= 100; ++i) get("a", i);
  EXPECT_EQ(n_made, 104) << "the last four of each are kept";
  get("a", 96);
  EXPECT_EQ(n_made, 105);
}

}  // namespace
}  // namespace weft
