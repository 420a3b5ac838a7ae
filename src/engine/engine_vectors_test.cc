// Turns whose answer is the vector of their prompt.
#include <cmath>
#include <cstring>

#include "engine/engine_test_util.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TurnOptions VectorOf(std::vector<int32_t> tokens) {
  TurnOptions options;
  options.tokens = std::move(tokens);
  options.vector = true;
  options.max_tokens = 0;
  return options;
}

std::vector<std::vector<float>> Take(Turn* turn) {
  const TurnOutcome outcome = Collect(turn);
  EXPECT_OK(outcome.done().status);
  EXPECT_TRUE(outcome.started.has_value());
  return outcome.started ? outcome.started->vectors : std::vector<std::vector<float>>();
}

std::vector<std::vector<float>> Ask(Engine* engine, const std::vector<int32_t>& tokens) {
  const auto turn = engine->SubmitOnce("", VectorOf(tokens));
  EXPECT_OK(turn);
  return turn.ok() ? Take(turn->get()) : std::vector<std::vector<float>>();
}

std::shared_ptr<const Model> Pooled(const char* architecture, const char* pooling) {
  const auto model = Model::Load(testing::TinyModelFile(architecture),
                                 {.n_threads = 1, .context_tokens = 512, .pooling = pooling});
  EXPECT_OK(model);
  return model.ok() ? *model : nullptr;
}

// Models that give vectors: encoders, and a model of text that pools in each way.
struct Source {
  const char* name;
  const char* model;
  const char* pooling;  // empty: the file's
};
constexpr Source kSources[] = {
    {"bert", "tiny-bert", ""},         {"modern_bert", "tiny-modern-bert", ""},
    {"reranker", "tiny-reranker", ""}, {"llama_last", "llama", "last"},
    {"llama_mean", "llama", "mean"},   {"llama_cls", "llama", "cls"},
    {"llama_none", "llama", "none"},   {"gemma3_mean", "gemma3", "mean"}};

class EngineVectorsTest : public ::testing::TestWithParam<Source> {
 protected:
  static std::shared_ptr<const Model> model() {
    if (*GetParam().pooling == '\0') return TinyModel(GetParam().model);
    return Pooled(GetParam().model, GetParam().pooling);
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineVectorsTest, ::testing::ValuesIn(kSources),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EngineVectorsTest, ATextAloneAndAmong63OthersHasTheSameBits) {
  const auto the_model = model();
  std::vector<std::vector<int32_t>> texts;
  for (uint64_t i = 0; i < 64; ++i) {
    texts.push_back(RandomTokens(1 + static_cast<int64_t>(i * i % 90), i));
  }
  EngineOptions options = SmallEngine();
  options.max_queued = 64;
  auto crowded = StartEngine(options, the_model);
  std::vector<std::shared_ptr<Turn>> turns;
  for (const auto& text : texts) {
    auto turn = crowded->SubmitOnce("", VectorOf(text));
    ASSERT_TRUE(turn.ok()) << turn.status();
    turns.push_back(*std::move(turn));
  }
  auto quiet = StartEngine(SmallEngine(), the_model);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto among = Take(turns[i].get());
    if (i % 4 != 3) continue;
    EXPECT_OK(quiet->DropPrefixes());
    const auto alone = Ask(quiet.get(), texts[i]);
    ASSERT_EQ(alone.size(), among.size()) << i;
    for (size_t row = 0; row < alone.size(); ++row) {
      ASSERT_EQ(alone[row].size(), among[row].size());
      EXPECT_EQ(std::memcmp(alone[row].data(), among[row].data(), 4 * alone[row].size()), 0)
          << "text " << i;
    }
  }
  EXPECT_OK(crowded->CheckIntegrity());
}

TEST_P(EngineVectorsTest, HasTheShapeThatTheModelSays) {
  const auto the_model = model();
  auto engine = StartEngine(SmallEngine(), the_model);
  const auto rows = Ask(engine.get(), RandomTokens(9, 1));
  EXPECT_EQ(rows.size(), the_model->pooling() == "none" ? 9u : 1u);
  for (const auto& row : rows) {
    EXPECT_EQ(std::ssize(row), the_model->vector_width());
    for (const float value : row) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(EngineVectors, PoolingsAreOfTheSameRows) {
  const auto tokens = RandomTokens(40, 3);
  const auto rows = Ask(StartEngine(SmallEngine(), Pooled("llama", "none")).get(), tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  EXPECT_EQ(Ask(StartEngine(SmallEngine(), Pooled("llama", "cls")).get(), tokens).at(0), rows[0]);
  EXPECT_EQ(Ask(StartEngine(SmallEngine(), Pooled("llama", "last")).get(), tokens).at(0),
            rows.back());
  const auto mean = Ask(StartEngine(SmallEngine(), Pooled("llama", "mean")).get(), tokens).at(0);
  for (size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const auto& row : rows) sum += static_cast<double>(row[i]);
    EXPECT_FLOAT_EQ(mean[i], static_cast<float>(sum / 40)) << i;
  }
}

TEST(EngineVectors, AKnownPrefixIsNotComputedAgainWhereTheLastRowIsTheVector) {
  auto engine = StartEngine(SmallEngine(), Pooled("llama", "last"));
  std::vector<int32_t> tokens = RandomTokens(50, 4);
  Ask(engine.get(), tokens);
  tokens.push_back(300);
  const auto turn = engine->SubmitOnce("", VectorOf(tokens));
  ASSERT_TRUE(turn.ok()) << turn.status();
  const TurnOutcome again = Collect(turn->get());
  EXPECT_EQ(again.started->cached_tokens, 50);
  const auto fresh = Ask(StartEngine(SmallEngine(), Pooled("llama", "last")).get(), tokens);
  EXPECT_EQ(again.started->vectors, fresh);
}

TEST(EngineVectors, ConversationsGoOnBesideThem) {
  const auto model = Pooled("llama", "mean");
  auto engine = StartEngine(SmallEngine(), model);
  const TurnOptions chat = Greedy(RandomTokens(20, 5), 30);
  const auto talking = engine->SubmitOnce("", chat);
  ASSERT_TRUE(talking.ok()) << talking.status();
  std::vector<std::shared_ptr<Turn>> texts;
  for (uint64_t i = 0; i < 12; ++i) {
    const auto turn = engine->SubmitOnce("", VectorOf(RandomTokens(100, 50 + i)));
    ASSERT_TRUE(turn.ok()) << turn.status();
    texts.push_back(*turn);
  }
  EXPECT_EQ(Collect(talking->get()).tokens(),
            RunAlone(model, SmallEngine(), std::span(&chat, 1))[0].tokens());
  const auto alone = Ask(StartEngine(SmallEngine(), model).get(), RandomTokens(100, 50));
  EXPECT_EQ(Take(texts[0].get()), alone);
}

TEST(EngineVectors, AnEncoderKeepsNothingOfItsTexts) {
  auto engine = StartEngine(SmallEngine(), TinyModel("tiny-bert"));
  for (uint64_t i = 0; i < 3; ++i) Ask(engine.get(), RandomTokens(80, 1));
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.cached_tokens, 0);
  EXPECT_EQ(stats.prompt_tokens, 240);
  EXPECT_EQ(stats.page_bytes + stats.slot_bytes + stats.checkpoint_bytes, 0);
  EXPECT_EQ(stats.pages_in_index + stats.index_nodes, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

// Not even where a state directory would have room for it; a named session's tokens are kept.
TEST(EngineVectors, AnEncoderWritesNoStateToDisk) {
  const std::string folder = ::testing::TempDir() + "weft_vectors_" + std::to_string(getpid());
  EngineOptions options = SmallEngine();
  options.state_dir = folder;
  {
    auto engine = StartEngine(options, TinyModel("tiny-modern-bert"));
    const SessionId session = NewSession(engine.get(), "kitchen");
    const TurnOutcome outcome = RunTurn(engine.get(), session, VectorOf(RandomTokens(500, 1)));
    EXPECT_OK(outcome.done().status);
    EXPECT_EQ(engine->Stats().disk_blocks, 0);
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(1000)));
  }
  std::filesystem::remove_all(folder);
}

std::string RefusalOf(Engine* engine, const TurnOptions& options,
                      StatusCode code = StatusCode::kInvalidArgument) {
  const auto turn = engine->SubmitOnce("", options);
  EXPECT_EQ(turn.status().code(), code) << turn.status();
  return std::string(Message(turn.status()));
}

TEST(EngineVectors, WhatAModelCannotDoIsRefused) {
  auto encoder = StartEngine(SmallEngine(), TinyModel("tiny-bert"));
  EXPECT_THAT(RefusalOf(encoder.get(), Greedy(RandomTokens(5, 1), 3)),
              HasSubstr("writes no text: it is for vectors of texts (embeddings; pooling mean)"));
  EXPECT_THAT(RefusalOf(encoder.get(), VectorOf(RandomTokens(301, 1)), StatusCode::kOutOfRange),
              HasSubstr("301 tokens is too large: it exceeds the available context size of 300"));
  TurnOptions generating = VectorOf(RandomTokens(5, 1));
  generating.max_tokens = 1;
  EXPECT_THAT(RefusalOf(encoder.get(), generating), HasSubstr("generates nothing"));

  auto chat = StartEngine();
  EXPECT_THAT(RefusalOf(chat.get(), VectorOf(RandomTokens(5, 1))),
              HasSubstr("gives no vectors of texts (embeddings): it is for text"));

  EXPECT_THAT(Message(Model::Load(testing::TinyModelFile("tiny-bert"),
                                  {.n_threads = 1, .context_tokens = 301})
                          .status()),
              HasSubstr("longer than the positions that the model has learned: 300"));
  EXPECT_THAT(Message(Model::Load(testing::TinyModelFile("tiny-reranker"),
                                  {.n_threads = 1, .pooling = "mean"})
                          .status()),
              HasSubstr("gives scores"));
}

// A step holds the longest text, whatever was asked for.
TEST(EngineVectors, ATextAsLongAsTheContextFits) {
  EngineOptions options = SmallEngine();
  options.max_step_tokens = 16;
  auto engine = StartEngine(options, TinyModel("tiny-bert"));
  EXPECT_EQ(Ask(engine.get(), RandomTokens(300, 1)).size(), 1u);
}

}  // namespace
}  // namespace weft
