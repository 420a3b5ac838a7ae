// Drafts, from a model or an MTP head, change only when tokens are computed.
#include <deque>
#include <filesystem>
#include <string_view>

#include "engine/engine_test_util.h"
#include "model/formats/gguf_writer.h"
#include "tools/random_weights.h"

namespace weft {
namespace {

EngineOptions Drafted(std::shared_ptr<const Model> draft) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  options.max_guesses = 5;
  options.draft_model = std::move(draft);
  options.draft_at_any_cost = true;
  return options;
}

EngineOptions Undrafted() {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kOff;
  return options;
}

std::shared_ptr<const Model> HeadOf(const Model& model) {
  auto head = Model::LoadHead(model, {.n_threads = 1});
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

// Writes a head that reads a model's KV cache, of one layer. It foresees what the models of
// MakeForeseeing say as their own heads do; otherwise its weights are random.
class SharedHeadFile {
 public:
  SharedHeadFile(const Model& model, bool foresees) : foresees_(foresees), model_(model) {}

  void Write(const std::string& path) {
    const std::string architecture = "gemma4-assistant";
    writer_.AddString("general.architecture", architecture);
    const auto add = [&](std::string_view key, int64_t value) {
      writer_.AddUint32(StrCat(architecture, ".", key), static_cast<uint32_t>(value));
    };
    add("block_count", 1), add("context_length", 512), add("embedding_length", kWidth);
    add("embedding_length_out", kWidth), add("feed_forward_length", 32);
    add("attention.head_count", 2), add("attention.head_count_kv", 1);
    add("attention.key_length", kHead), add("attention.value_length", kHead);
    writer_.AddFloat32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.AddBoolArray(architecture + ".attention.sliding_window_pattern", {false});
    AddTensors();
    EXPECT_OK(writer_.Write(path));
  }

 private:
  static constexpr int64_t kWidth = 64, kHead = 32;

  void AddTensors() {
    const auto next = [](int64_t kind) { return (kind + 1) % kWidth; };
    Matrix("token_embd", kWidth, model_.n_vocab(),
           [&](int64_t token, int64_t kind) { return token == kWidth + next(kind); });
    Matrix("nextn.pre_projection", 2 * kWidth, kWidth, [&](int64_t kind, int64_t from) {
      return kind == from || (from >= kWidth && kind == next(from - kWidth));
    });
    Matrix("nextn.post_projection", kWidth, kWidth,
           [](int64_t to, int64_t from) { return to == from; });
    const auto nothing = [](int64_t, int64_t) { return false; };
    Matrix("blk.0.attn_q", kWidth, 2 * kHead, nothing);
    Matrix("blk.0.attn_output", 2 * kHead, kWidth, nothing);
    Matrix("blk.0.ffn_gate", kWidth, 32, nothing);
    Matrix("blk.0.ffn_up", kWidth, 32, nothing);
    Matrix("blk.0.ffn_down", 32, kWidth, nothing);
    for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.post_attention_norm",
                             "blk.0.ffn_norm", "blk.0.post_ffw_norm"}) {
      Vector(norm, kWidth);
    }
    Vector("blk.0.attn_q_norm", kHead);
    Vector("blk.0.layer_output_scale", 1);
  }

  void Matrix(const std::string& name, int64_t n_in, int64_t n_out,
              FunctionRef<bool(int64_t row, int64_t column)> is_one) {
    std::vector<float>& values = Add(name, {n_in, n_out}, -0.3f, 0.3f);
    for (size_t i = 0; foresees_ && i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      values[i] = is_one(at / n_in, at % n_in) ? 1 : 0;
    }
  }
  void Vector(const std::string& name, int64_t n) {
    std::vector<float>& values = Add(name, {n}, 0.6f, 1.4f);
    if (foresees_) std::ranges::fill(values, 1.0f);
  }
  // The values may change until Write.
  std::vector<float>& Add(const std::string& name, const std::vector<int64_t>& dims, float low,
                          float high) {
    const int64_t n = dims.size() == 1 ? dims[0] : dims[0] * dims[1];
    values_.push_back(tools::RandomWeights(7).MakeVector(name, n, low, high));
    writer_.AddTensor(name + ".weight", DType::kF32, dims,
                      std::as_bytes(std::span(values_.back())));
    return values_.back();
  }

  const bool foresees_;
  const Model& model_;
  GgufWriter writer_;
  std::deque<std::vector<float>> values_;
};

std::string SharedHeadPath(const Model& model, bool foresees) {
  const std::string path = StrCat(model.path(), foresees ? ".right" : ".random", "-head.gguf");
  if (!std::filesystem::exists(path)) SharedHeadFile(model, foresees).Write(path);
  return path;
}

std::shared_ptr<const Model> SharedHeadOf(const Model& model, bool foresees) {
  const std::string path = SharedHeadPath(model, foresees);
  auto head = Model::LoadHead(model, *ModelFile::Open(path), {.n_threads = 1});
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

TurnOptions DraftedTurn(float temperature, int64_t n_prompt, int64_t max_tokens,
                        uint64_t seed = 1) {
  TurnOptions turn = Greedy(RandomTokens(n_prompt, seed), max_tokens);
  turn.sampling.temperature = temperature;
  turn.sampling.seed = 17;
  return turn;
}

// Several turns at once on the engine, each with the same answer as alone without drafts.
void ExpectSameAnswersTogether(Engine* engine, const std::shared_ptr<const Model>& model,
                               std::span<const TurnOptions> turns) {
  std::vector<std::shared_ptr<Turn>> submitted;
  submitted.reserve(turns.size());
  for (const TurnOptions& turn : turns) {
    submitted.push_back(SubmitTurn(engine, NewSession(engine), turn));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    ExpectSameAnswer(Collect(submitted[i].get()),
                     RunAlone(model, Undrafted(), turns.subspan(i, 1))[0]);
  }
}

// A model with a prediction head drafts with that, any other one for itself; with "over-", a head
// in a file of its own drafts over the model's state.
class EngineDraftTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::string_view kOver = "over-";
  static bool has_shared_head() { return std::string_view(GetParam()).starts_with(kOver); }
  static std::string_view name() {
    return std::string_view(GetParam()).substr(has_shared_head() ? kOver.size() : 0);
  }
  static std::shared_ptr<const Model> model() { return TinyModel(name()); }
  static bool has_head() { return has_shared_head() || name().ends_with("-mtp"); }
  static std::shared_ptr<const Model> draft() {
    if (has_shared_head()) return SharedHeadOf(*model(), foresees());
    return has_head() ? HeadOf(*model()) : model();
  }
  // Whether drafts are always right where no chance is in play; the other heads hardly ever are.
  static bool foresees() { return !has_head() || name().starts_with("foreseeing-"); }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineDraftTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama", "recurrent-gemma3",
                                           "qwen35-mtp", "glm4moe-mtp", "recurrent-glm4moe-mtp",
                                           "foreseeing-qwen35-mtp", "foreseeing-glm4moe-mtp",
                                           "recurrent-foreseeing-glm4moe-mtp", "over-gemma3",
                                           "over-foreseeing-glm4moe-mtp",
                                           "over-foreseeing-qwen35-mtp"),
                         kNameOfModel);

TEST_P(EngineDraftTest, WhateverIsDraftedNothingChanges) {
  std::vector<std::shared_ptr<const Model>> drafts = {draft()};
  if (!has_head()) {
    // Ones that are hardly ever right, with and without state that cannot be cut.
    drafts.push_back(TinyModel("llama", 5));
    drafts.push_back(TinyModel("recurrent-llama", 5));
  }
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    TurnOptions turn = DraftedTurn(temperature, 40, 50);
    turn.top_logprobs = 1;
    turn.sampling.repetition_penalty = 1.1f;
    turn.n_choices = 2;
    const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
    for (const auto& draft : drafts) {
      auto engine = StartEngine(Drafted(draft), model());
      ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
      const EngineStats stats = engine->Stats();
      EXPECT_GT(stats.guessed_tokens, 0);
      EXPECT_GT(stats.draft_steps, 0);
      EXPECT_GT(stats.draft_weight_bytes, 0);
      EXPECT_EQ(stats.draft_state_bytes > 0, !has_shared_head());
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

// Prompts in one step and in many, longer than the hidden values kept for a waiting MTP head.
TEST_P(EngineDraftTest, PromptsOfAnyLengthAreFollowed) {
  for (const int64_t n_prompt : {1, 2, 33, 450}) {
    for (const int64_t step_tokens : {16, 1024}) {
      EngineOptions options = Drafted(draft()), plain = Undrafted();
      options.max_step_tokens = plain.max_step_tokens = step_tokens;
      options.memory_bytes = plain.memory_bytes = int64_t{64} << 20;
      const TurnOptions turn = DraftedTurn(0, n_prompt, 20);
      const TurnOutcome said = RunAlone(model(), plain, std::span(&turn, 1))[0];
      auto engine = StartEngine(options, model());
      const int64_t before = engine->Stats().steps;
      const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
      ExpectSameAnswer(outcome, said);
      const TurnUsage& usage = outcome.done().usage;
      EXPECT_GT(usage.guessed_tokens, 0) << n_prompt;
      EXPECT_EQ(usage.guessed_tokens, engine->Stats().guessed_tokens);
      if (foresees()) {
        EXPECT_EQ(usage.accepted_guesses, usage.guessed_tokens);
        EXPECT_LT(engine->Stats().steps - before, 10 + n_prompt / step_tokens);
      }
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

TEST_P(EngineDraftTest, ForksUndoneTurnsAndFilesAreFollowed) {
  TestFolder folder;
  EngineOptions options = Drafted(draft());
  options.state_dir = folder.path();
  auto engine = StartEngine(options, model());
  auto plain = StartEngine(Undrafted(), model());
  const SessionId a = NewSession(engine.get(), "kept"), b = NewSession(plain.get());
  const TurnOptions first = DraftedTurn(0, 60, 40);
  ExpectSameAnswer(RunTurn(engine.get(), a, first), RunTurn(plain.get(), b, first));
  for (const int64_t position : {97, 70, 33}) {
    const auto fork = engine->Fork(a, position, {});
    const auto plain_fork = plain->Fork(b, position, {});
    ASSERT_TRUE(fork.ok() && plain_fork.ok());
    const TurnOptions next = DraftedTurn(position == 70 ? 1 : 0, 3, 20);
    ExpectSameAnswer(RunTurn(engine.get(), *fork, next), RunTurn(plain.get(), *plain_fork, next));
  }
  EXPECT_OK(engine->Truncate(a, 50));
  EXPECT_OK(plain->Truncate(b, 50));
  const TurnOptions after = DraftedTurn(0.8f, 5, 30);
  int64_t before = engine->Stats().guessed_tokens;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().guessed_tokens, before);
  EXPECT_OK(engine->Park(a));
  EXPECT_OK(engine->DropPrefixes());
  before = engine->Stats().guessed_tokens;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().guessed_tokens, before) << "though nothing is known of what was parked";
  if (foresees()) {
    EXPECT_GT(engine->Stats().accepted_guesses, 0);
  }
  EXPECT_OK(engine->CheckIntegrity());
}

// What another conversation computed is taken over by the model and its draft alike.
TEST_P(EngineDraftTest, PrefixesAreFoundByBoth) {
  auto engine = StartEngine(Drafted(draft()), model());
  const TurnOptions turn = DraftedTurn(0, 100, 30);
  const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
  const int64_t alone = engine->Stats().draft_steps;
  const TurnOutcome again = RunTurn(engine.get(), NewSession(engine.get()), turn);
  ExpectSameAnswer(again, said);
  EXPECT_GT(again.done().usage.cached_tokens, 0);
  EXPECT_GT(again.done().usage.guessed_tokens, 0);
  EXPECT_GT(engine->Stats().draft_steps, alone);
  if (foresees()) {
    EXPECT_EQ(engine->Stats().accepted_guesses, engine->Stats().guessed_tokens);
  }
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDraftTest, ManyAtOnceInOneBudget) {
  EngineOptions options = Drafted(draft());
  options.memory_bytes = int64_t{2} << 20;
  auto engine = StartEngine(options, model());
  std::vector<TurnOptions> turns;
  for (uint64_t i = 0; i < 6; ++i) {
    turns.push_back(DraftedTurn(i % 2 == 0 ? 0.0f : 1.0f, 40 + 20 * int64_t(i), 30, i));
  }
  ExpectSameAnswersTogether(engine.get(), model(), turns);
  const EngineStats stats = engine->Stats();
  EXPECT_LE(testing::StateBytes(stats) + stats.draft_state_bytes, options.memory_bytes);
  EXPECT_GT(stats.guessed_tokens, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

// More texts draft at once than turns run.
TEST_P(EngineDraftTest, TurnsWithChoicesAllDraft) {
  EngineOptions options = Drafted(draft());
  options.max_running = 2;
  int n_notices = 0;
  options.on_notice = [&](const std::string& notice) {
    ADD_FAILURE() << notice;
    ++n_notices;
  };
  auto engine = StartEngine(options, model());
  std::vector<TurnOptions> turns = {DraftedTurn(0.7f, 20, 30, 1), DraftedTurn(0.7f, 30, 30, 2)};
  for (TurnOptions& turn : turns) turn.n_choices = 2;
  ExpectSameAnswersTogether(engine.get(), model(), turns);
  EXPECT_GT(engine->Stats().guessed_tokens, 0);
  EXPECT_EQ(n_notices, 0);
}

TEST_P(EngineDraftTest, WithoutForceThePlannerDecides) {
  for (const Speculation speculation : {Speculation::kDraft, Speculation::kAuto}) {
    EngineOptions options = Drafted(draft());
    options.draft_at_any_cost = false;
    options.speculation = speculation;
    auto engine = StartEngine(options, model());
    std::vector<TurnOptions> turns;
    for (uint64_t i = 0; i < 5; ++i) {
      turns.push_back(DraftedTurn(i % 2 == 0 ? 0.0f : 0.7f, 20, 150, i));
    }
    ExpectSameAnswersTogether(engine.get(), model(), turns);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST(EngineDraftFaultsTest, WhenTheDraftFailsTheAnswersGoOn) {
  testing::FaultyBackend backend;
  const auto draft = TinyModel("llama", 1, &backend);
  const TurnOptions turn = DraftedTurn(0, 20, 250);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Undrafted(), std::span(&turn, 1))[0];
  for (const int64_t after : {0, 1, 5}) {
    EngineOptions options = Drafted(draft);
    auto engine = StartEngine(options);
    backend.faults().fail_forward = backend.faults().forwards + 1 + after;
    const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
    ExpectSameAnswer(outcome, said);
    EXPECT_GT(outcome.done().usage.accepted_guesses, 0) << "it came back";
    EXPECT_OK(engine->CheckIntegrity());
  }
  backend.faults().fail_grow = true;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), Drafted(draft)).status(),
              IsError(StatusCode::kResourceExhausted, "draft model"));
}

TEST(EngineDraftOptionsTest, ADraftModelMustFit) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "no draft model"));
  options.draft_model = TinyModel("tiny-bert");
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "writes no text"));
  options.draft_model = TinyModel("llama", 2);
  options.memory_bytes = 1000;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kResourceExhausted, "memory budget"));
}

// The settled option tells the engine and every reader the same.
TEST(EngineDraftOptionsTest, WhatIsGuessedIsSettledAtTheStart) {
  class Loose : public testing::WrappedBackend {
   public:
    Loose() : capabilities_(WrappedBackend::capabilities()) { capabilities_.same_bits = false; }
    const BackendCapabilities& capabilities() const override { return capabilities_; }

   private:
    BackendCapabilities capabilities_;
  } loose;
  const auto model = TinyModel("llama", 1, &loose);
  EngineOptions options = Drafted(TinyModel("llama"));
  for (const Speculation speculation : {Speculation::kDraft, Speculation::kLookup}) {
    options.speculation = speculation;
    const auto engine = StartEngine(options, model);
    EXPECT_EQ(engine->options().speculation, Speculation::kOff);
    EXPECT_EQ(engine->options().draft_model, nullptr);
    const TurnOptions turn = DraftedTurn(0, 20, 20);
    EXPECT_EQ(RunTurn(engine.get(), NewSession(engine.get()), turn).done().usage.guessed_tokens, 0);
    EXPECT_EQ(engine->Stats().draft_weight_bytes, 0);
  }
  options.speculation = Speculation::kDraft;
  EXPECT_EQ(StartEngine(options)->options().speculation, Speculation::kDraft);
  options.max_guesses = 0;
  EXPECT_EQ(StartEngine(options)->options().speculation, Speculation::kOff);
  // What does not fit is refused though it would not be used.
  options.draft_model = TinyModel("tiny-bert");
  EXPECT_THAT(Engine::Start(model, options).status(),
              IsError(StatusCode::kInvalidArgument, "writes no text"));
  options.draft_model = nullptr;
  EXPECT_THAT(Engine::Start(model, options).status(),
              IsError(StatusCode::kInvalidArgument, "no draft model"));
}

TEST(EngineDraftOptionsTest, AHeadInAFileOfItsOwnMustBeTheModels) {
  const auto model = TinyModel("foreseeing-glm4moe-mtp");
  const EngineOptions options = Drafted(SharedHeadOf(*model, true));
  EXPECT_THAT(Engine::Start(TinyModel("glm4moe-mtp"), options).status(),
              IsError(StatusCode::kInvalidArgument, "of another model"));
  const std::string path = SharedHeadPath(*model, false);
  EXPECT_THAT(Model::Load(path, {}).status(),
              IsError(StatusCode::kInvalidArgument, "give it as --draft-model"));
  EXPECT_THAT(Model::LoadHead(*TinyModel("tiny-bert"), *ModelFile::Open(path), {}).status(),
              IsError(StatusCode::kInvalidArgument, "for another model"));
}

TEST(EngineDraftOptionsTest, AHeadMustBeTheModels) {
  EXPECT_THAT(Model::LoadHead(*TinyModel("llama"), {}).status(),
              IsError(StatusCode::kNotFound, "has no prediction head"));
  const EngineOptions options = Drafted(HeadOf(*TinyModel("glm4moe-mtp")));
  EXPECT_THAT(Engine::Start(TinyModel("qwen35-mtp"), options).status(),
              IsError(StatusCode::kInvalidArgument, "of another model"));
}

}  // namespace
}  // namespace weft
