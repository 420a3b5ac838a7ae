// Encoders on every backend against the figures of another implementation
// (tools/encoder_figures.py, in numpy), and against the promise that a text gives the same bits
// whatever runs next to it.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compute/spec_tensors.h"
#include "compute/text_head.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_encoder.h"

namespace weft::testing {
namespace {

using tools::EncoderShape;
using tools::KnownEncoders;

// Independent computations in float and in double.
constexpr double kTolerance = 1e-4;

struct Case {
  std::string backend;
  std::string model;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string_view backend : UsableBackends()) {
    for (const EncoderShape& shape : KnownEncoders()) {
      cases.push_back({std::string(backend), std::string(shape.name)});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.backend + "_" + info.param.model;
  std::ranges::replace(name, '-', '_');
  return name;
}

using Tokens = std::vector<TokenId>;

// A text of random tokens between those that begin and end one.
Tokens RandomText(int64_t n_tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens = {2};
  while (std::ssize(tokens) < n_tokens - 1)
    tokens.push_back(5 + static_cast<TokenId>(random() % 500));
  tokens.push_back(3);
  return tokens;
}

class EncodersTest : public ::testing::TestWithParam<Case> {
 protected:
  EncodersTest()
      : path_(::testing::TempDir() + "weft_encoder_" + std::to_string(getpid()) + ".gguf") {}
  ~EncodersTest() override { std::filesystem::remove(path_); }

  void Load(const std::string& type) {
    const EncoderShape* const shape = tools::FindEncoder(GetParam().model);
    ASSERT_NE(shape, nullptr);
    const auto made = tools::MakeEncoder(*shape, {.type = type}, path_);
    ASSERT_TRUE(made.ok()) << made.status();
    auto model = LoadModel(GetParam().backend, path_, 0);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  const ModelSpec& spec() const { return model_.weights->spec(); }

  std::unique_ptr<Executor> NewExecutor(int n_threads) {
    auto state = model_.backend->NewState(*model_.weights, {});
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) return nullptr;
    states_.push_back(*std::move(state));
    auto executor = model_.backend->NewExecutor(model_.weights, states_.back().get(),
                                                {.n_threads = n_threads, .max_step_tokens = 4096});
    EXPECT_TRUE(executor.ok()) << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }

  // All rows of the texts, computed in one step.
  std::vector<std::vector<float>> Rows(Executor* executor, const std::vector<Tokens>& texts) {
    std::vector<StepSequence> sequences;
    size_t n_values = 0;
    for (const Tokens& text : texts) {
      StepSequence& sequence = sequences.emplace_back();
      sequence.tokens = text;
      sequence.n_vectors = std::ssize(text);
      n_values += text.size() * static_cast<size_t>(spec().d_model);
    }
    std::vector<float> values(n_values);
    const Status status = executor->Forward({.sequences = sequences, .vectors = values});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::vector<float>> rows;
    size_t at = 0;
    for (const Tokens& text : texts) {
      const size_t n = text.size() * static_cast<size_t>(spec().d_model);
      rows.emplace_back(values.begin() + at, values.begin() + at + n);
      at += n;
    }
    return rows;
  }

  // The vector that a text's rows become.
  std::vector<float> Pooled(const std::vector<float>& rows) {
    const auto file = ModelFile::Open(path_);
    EXPECT_TRUE(file.ok());
    const auto head = TextHead::Load(**file, spec());
    EXPECT_TRUE(head.ok()) << head.status();
    TextPooler pooler;
    const auto width = static_cast<size_t>(spec().d_model);
    for (size_t at = 0; at < rows.size(); at += width) {
      pooler.Add((*head)->pooling(), std::span(rows).subspan(at, width));
    }
    return pooler.Finish(**head).at(0);
  }

  // Bit for bit where the backend promises that, else but for the order of sums.
  bool Agree(const std::vector<float>& a, const std::vector<float>& b) const {
    if (!model_.backend->capabilities().same_bits) return MaxDifference(a, b) <= kTolerance;
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
  }

  const std::string path_;
  LoadedModel model_;
  std::vector<std::unique_ptr<StateStore>> states_;
};

void ExpectNear(const std::vector<double>& expected, std::span<const float> values,
                const std::string& what) {
  ASSERT_GE(values.size(), expected.size()) << what;
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(expected[i] - static_cast<double>(values[i])));
  }
  EXPECT_LE(worst, kTolerance) << what;
}

TEST_P(EncodersTest, AgreeWithFigures) {
  Load("F32");
  if (HasFatalFailure()) return;
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/tests/conformance/encoder_figures.json");
  ASSERT_TRUE(file.is_open());
  const auto figures = nlohmann::json::parse(file).at(GetParam().model);
  const auto executor = NewExecutor(1);
  ASSERT_NE(executor, nullptr);
  ASSERT_GE(figures.size(), 4u);
  for (const auto& text : figures) {
    const auto tokens = text["tokens"].get<Tokens>();
    const std::vector<float> rows = Rows(executor.get(), {tokens}).at(0);
    for (const auto& row : text["rows"]) {
      const auto begin = row["token"].get<size_t>() * static_cast<size_t>(spec().d_model);
      ExpectNear(row["values"].get<std::vector<double>>(), std::span(rows).subspan(begin),
                 StrCat("token ", row["token"].get<int>(), " of ", tokens.size()));
    }
    ExpectNear(text["vector"].get<std::vector<double>>(), Pooled(rows),
               StrCat("the vector of ", tokens.size(), " tokens"));
  }
}

TEST_P(EncodersTest, GiveTheSameBitsAloneAndAmongOthers) {
  for (const char* const type : {"F32", "Q8_0"}) {
    Load(type);
    if (HasFatalFailure()) return;
    std::vector<Tokens> texts;
    // The emulator is slow.
    const uint64_t n_texts = GetParam().backend == "emu" ? 9 : 24;
    for (uint64_t i = 0; i < n_texts; ++i) texts.push_back(RandomText(2 + i * i % 131, i));
    const auto executor = NewExecutor(1);
    ASSERT_NE(executor, nullptr);
    const auto together = Rows(executor.get(), texts);
    const auto by_more = Rows(NewExecutor(3).get(), texts);
    for (size_t i = 0; i < texts.size(); i += 5) {
      const auto alone = Rows(executor.get(), {texts[i]});
      EXPECT_TRUE(Agree(alone[0], together[i])) << type << ", text " << i;
      EXPECT_TRUE(Agree(alone[0], by_more[i])) << type << ", text " << i << ", by three threads";
    }
  }
}

// Positions, types and norms apply to an input embedding as to the table's own.
TEST_P(EncodersTest, TakeVectorsInPlaceOfTokens) {
  Load("Q8_0");
  if (HasFatalFailure()) return;
  const Tokens text = RandomText(20, 4);
  const auto file = ModelFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto table = ReadTableRows(**file, spec().embedding, text);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto width = static_cast<size_t>(spec().d_model);
  const auto executor = NewExecutor(1);
  ASSERT_NE(executor, nullptr);
  Tokens ids = text;
  StepSequence sequence;
  for (size_t i = 1; i < text.size(); i += 2) {
    ids[i] = kAnyRow;
    sequence.rows.push_back(std::span(*table).subspan(i * width, width));
  }
  sequence.tokens = ids;
  sequence.n_vectors = std::ssize(ids);
  std::vector<float> values(table->size());
  const Status status = executor->Forward({.sequences = {&sequence, 1}, .vectors = values});
  if (!model_.backend->capabilities().rows || !CheckTakesRows(spec()).ok()) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Agree(values, Rows(executor.get(), {text}).at(0)));
}

// Every token sees those that follow, but not the other texts of the step.
TEST_P(EncodersTest, ALaterTokenMatters) {
  Load("F32");
  if (HasFatalFailure()) return;
  Tokens text = RandomText(12, 1);
  const auto executor = NewExecutor(1);
  ASSERT_NE(executor, nullptr);
  const auto before = Rows(executor.get(), {text}).at(0);
  text[9] = text[9] == 7 ? 8 : 7;
  const auto after = Rows(executor.get(), {text}).at(0);
  EXPECT_NE(std::memcmp(before.data(), after.data(), sizeof(float)), 0);
}

TEST_P(EncodersTest, TakeOnlyWholeTextsAndHaveNoLogits) {
  Load("F32");
  if (HasFatalFailure()) return;
  EXPECT_TRUE(NeedsWholeTexts(spec()));
  EXPECT_FALSE(KeepsState(spec()));
  const auto executor = NewExecutor(1);
  ASSERT_NE(executor, nullptr);
  const Tokens text = RandomText(6, 1);
  StepSequence sequence;
  sequence.tokens = text;
  sequence.n_logits = 1;
  std::vector<float> logits(static_cast<size_t>(spec().n_vocab));
  EXPECT_EQ(executor->Forward({.sequences = {&sequence, 1}, .logits = logits}).code(),
            StatusCode::kInvalidArgument);
  sequence.n_logits = 0;
  sequence.n_vectors = 1;
  sequence.position = 1;
  std::vector<float> vectors(static_cast<size_t>(spec().d_model));
  EXPECT_EQ(executor->Forward({.sequences = {&sequence, 1}, .vectors = vectors}).code(),
            StatusCode::kInvalidArgument);
  sequence.position = 0;
  EXPECT_TRUE(executor->Forward({.sequences = {&sequence, 1}, .vectors = vectors}).ok());
}

TEST(WordPieces, AreThoseOfAnotherImplementation) {
  const std::string path = ::testing::TempDir() + "weft_words_" + std::to_string(getpid());
  ASSERT_TRUE(tools::MakeEncoder(*tools::FindEncoder("tiny-bert"), {.type = "F32"}, path).ok());
  const auto opened = ModelFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto tokenizer = Tokenizer::Load(**opened);
  std::filesystem::remove(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/tests/conformance/word_piece_figures.json");
  const auto figures = nlohmann::json::parse(file);
  ASSERT_GE(figures.size(), 20u);
  for (const auto& figure : figures) {
    const auto text = figure["text"].get<std::string>();
    EXPECT_EQ((*tokenizer)->Encode(text, {}), figure["ids"].get<Tokens>()) << text;
    Tokens around = figure["ids"].get<Tokens>();
    around.insert(around.begin(), 2);
    around.push_back(3);
    EXPECT_EQ((*tokenizer)->Encode(text, {.add_special = true}), around) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EncodersTest, ::testing::ValuesIn(Cases()), CaseName);

}  // namespace
}  // namespace weft::testing
