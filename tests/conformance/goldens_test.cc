// Every backend against the reference data: the logits of an independent
// implementation, for every model whose architecture is known.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/files/mapped_file.h"
#include "compute/spec_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_spec_test_util.h"
#include "tests/conformance/golden_cases.h"
#include "tests/conformance/own_goldens.h"
#include "tests/support/goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft::testing {
namespace {

// Independent computations of these models in float differ by less than 1e-4.
constexpr double kTolerance = 1e-3;
// The same over weights that are coarse: larger values, hence larger roundings.
constexpr double kQuantizedTolerance = 2e-3;
// Thousands of positions on, angles in float differ in their last bits.
constexpr double kFarTolerance = 5e-3;

struct Case {
  std::string backend;
  std::string model;
};

std::vector<Case> CasesOf(const std::vector<std::string>& models) {
  std::vector<Case> cases;
  for (const std::string_view backend : UsableBackends()) {
    for (const std::string& model : models) cases.push_back({std::string(backend), model});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return CaseNameOf(info.param.backend, info.param.model);
}

class GoldenTest : public ::testing::TestWithParam<Case> {
 protected:
  // Loads the case's model, or skips the test where the backend cannot run it.
  void Load(const std::string& path, int64_t context_tokens) {
    auto model = LoadModel(GetParam().backend, path, context_tokens);
    if (model.status().code() == StatusCode::kUnimplemented) {
      GTEST_SKIP() << Message(model.status());
    }
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto runner = ModelRunner::New(model_, RunnerOptions());
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
    RecordProperty("architecture", runner_->spec().architecture);
    sequence_ = runner_->Add();
  }

  int64_t n_vocab() const { return runner_->spec().n_vocab; }

  // Feeds the prompt and compares the wanted rows; keeps the last row.
  void ComparePrompt(const GoldenRun& run) {
    const auto logits = runner_->Feed(sequence_, run.tokens);
    ASSERT_TRUE(logits.ok()) << logits.status();
    CompareLogits(run, *logits);
    last_row_.assign(logits->end() - n_vocab(), logits->end());
  }

  void CompareLogits(const GoldenRun& run, std::span<const float> logits) {
    ASSERT_EQ(run.logits.size(), run.positions.size() * n_vocab());
    double worst = 0;
    for (size_t i = 0; i < run.positions.size(); ++i) {
      const auto mine = LogitRow(logits, n_vocab(), run.positions[i]);
      const auto theirs = LogitRow(run.logits, n_vocab(), i);
      const double difference = MaxDifference(mine, theirs);
      worst = std::max(worst, difference);
      ASSERT_LE(difference, kTolerance) << "position " << run.positions[i];
      EXPECT_EQ(ArgMax(mine), ArgMax(theirs)) << "position " << run.positions[i];
    }
    RecordProperty("max_difference", std::to_string(worst));
    for (size_t i = 0; i < run.argmax.size(); ++i) {
      const auto mine = LogitRow(logits, n_vocab(), i);
      if (Margin(mine) < 2 * kTolerance) continue;  // too close to call
      EXPECT_EQ(ArgMax(mine), run.argmax[i]) << "position " << i;
    }
  }

  // The logits of a new sequence where every `every`-th token is sent as its input embedding.
  StatusOr<std::vector<float>> FeedRows(std::span<const TokenId> tokens,
                                        std::span<const float> table, size_t every) {
    const auto width = static_cast<size_t>(runner_->spec().d_model);
    std::vector<TokenId> ids(tokens.begin(), tokens.end());
    ModelRunner::Part part{runner_->Add(), ids};
    for (size_t i = 0; i < ids.size(); i += every) {
      part.rows.push_back(table.subspan(i * width, width));
      ids[i] = kAnyRow;
    }
    return runner_->Step({&part, 1});
  }

  // Continues greedily as long as the other implementation's choice was clear.
  void CompareGreedy(const GoldenRun& run) {
    for (size_t i = 0; i < run.greedy.size(); ++i) {
      if (run.greedy_margins[i] < 2 * kTolerance) return;
      const TokenId token = ArgMax(last_row_);
      ASSERT_EQ(token, run.greedy[i]) << "greedy token " << i;
      const auto logits = runner_->Feed(sequence_, {&token, 1});
      ASSERT_TRUE(logits.ok()) << logits.status();
      last_row_ = *logits;
    }
  }

  LoadedModel model_;
  std::unique_ptr<ModelRunner> runner_;
  int sequence_ = 0;
  std::vector<float> last_row_;
};

class FloatModelTest : public GoldenTest {};
class FarModelTest : public GoldenTest {};
class QuantizedModelTest : public GoldenTest {};

TEST_P(FloatModelTest, ShortRun) {
  const auto run = ReadShortRun(GetParam().model);
  ASSERT_TRUE(run.ok()) << run.status();
  Load(FloatModelPath(GetParam().model), run->context_tokens);
  if (IsSkipped() || HasFatalFailure()) return;
  ComparePrompt(*run);
  if (!HasFatalFailure()) CompareGreedy(*run);
}

// All or some tokens sent as their input embeddings: within the same tolerances, and bitwise
// identical to the tokens where the backend promises so.
TEST_P(FloatModelTest, ShortRunOfRows) {
  const std::string path = FloatModelPath(GetParam().model);
  const auto run = ReadShortRun(GetParam().model);
  ASSERT_TRUE(run.ok()) << run.status();
  Load(path, run->context_tokens);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto table = ReadTableRows(**file, runner_->spec().embedding, run->tokens);
  ASSERT_TRUE(table.ok()) << table.status();
  const bool takes_rows =
      model_.backend->capabilities().rows && CheckTakesRows(runner_->spec()).ok();
  const auto of_tokens = runner_->Feed(sequence_, run->tokens);
  ASSERT_TRUE(of_tokens.ok()) << of_tokens.status();
  for (const size_t every : {1, 2}) {
    const auto logits = FeedRows(run->tokens, *table, every);
    if (!takes_rows) {
      EXPECT_EQ(logits.status().code(), StatusCode::kUnimplemented) << logits.status();
      continue;
    }
    ASSERT_TRUE(logits.ok()) << logits.status();
    CompareLogits(*run, *logits);
    if (HasFatalFailure()) return;
    if (!model_.backend->capabilities().same_bits) continue;
    EXPECT_EQ(std::memcmp(logits->data(), of_tokens->data(), logits->size() * sizeof(float)), 0)
        << "a row in place of every token number " << every;
  }
}

TEST_P(FloatModelTest, LongRun) {
  if (!RunsHere(GetParam().backend, GetParam().model)) GTEST_SKIP() << "with WEFT_EMULATE=all";
  const auto run = ReadLongRun(GetParam().model);
  ASSERT_TRUE(run.ok()) << run.status();
  Load(FloatModelPath(GetParam().model), run->context_tokens);
  if (IsSkipped() || HasFatalFailure()) return;
  ComparePrompt(*run);
  if (!HasFatalFailure()) CompareGreedy(*run);
}

// Thousands of tokens, to find errors that only long windows and chunks show. In several steps,
// where only the wanted rows are computed to the end.
TEST_P(FarModelTest, FarRun) {
  const auto run = ReadFarRun(GetParam().model);
  ASSERT_TRUE(run.ok()) << run.status();
  Load(FloatModelPath(GetParam().model), run->context_tokens);
  if (IsSkipped() || HasFatalFailure()) return;
  constexpr size_t kChunk = 512;
  const std::span<const TokenId> tokens(run->tokens);
  size_t i = 0;
  for (size_t done = 0; done < tokens.size(); done += kChunk) {
    const auto part = tokens.subspan(done, std::min(kChunk, tokens.size() - done));
    const auto logits = runner_->Feed(sequence_, part);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (; i < run->positions.size(); ++i) {
      const auto row = static_cast<size_t>(run->positions[i]) - done;
      if (row >= part.size()) break;
      const auto mine = LogitRow(*logits, n_vocab(), static_cast<int64_t>(row));
      const auto theirs = LogitRow(run->logits, n_vocab(), static_cast<int64_t>(i));
      EXPECT_LE(MaxDifference(mine, theirs), kFarTolerance) << "position " << run->positions[i];
      EXPECT_EQ(ArgMax(mine), ArgMax(theirs)) << "position " << run->positions[i];
    }
  }
  EXPECT_EQ(i, run->positions.size());
}

TEST_P(QuantizedModelTest, LogitsOrDivergence) {
  const auto run = ReadQuantizedRun(GetParam().model);
  ASSERT_TRUE(run.ok()) << run.status();
  Load(QuantizedModelPath(GetParam().model), run->exact.context_tokens);
  if (IsSkipped() || HasFatalFailure()) return;
  const auto logits = runner_->Feed(sequence_, run->exact.tokens);
  ASSERT_TRUE(logits.ok()) << logits.status();
  ASSERT_EQ(logits->size(), run->exact.logits.size());
  if (GetParam().backend == "reference") {
    EXPECT_LE(MaxDifference(*logits, run->exact.logits), kQuantizedTolerance);
    return;
  }
  // Backends may round activations to 8 bits: no element can be compared, but the
  // distributions must stay as close as the other implementation's.
  const double mine = MeanKl(run->exact.logits, *logits, n_vocab());
  const double theirs = MeanKl(run->exact.logits, run->eight_bit, n_vocab());
  RecordProperty("mean_kl", std::to_string(mine));
  EXPECT_LE(mine, 2 * theirs);
}

INSTANTIATE_TEST_SUITE_P(Goldens, FloatModelTest, ::testing::ValuesIn(CasesOf(FloatModelNames())),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Goldens, QuantizedModelTest,
                         ::testing::ValuesIn(CasesOf(QuantizedModelNames())), CaseName);
// The other backends are too slow for this length.
std::vector<Case> FarCases() {
  std::vector<Case> cases;
  for (const std::string& model : FarModelNames()) cases.push_back({"cpu", model});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Goldens, FarModelTest, ::testing::ValuesIn(FarCases()), CaseName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FarModelTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FloatModelTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QuantizedModelTest);

// Headers of our own models, damaged: an error or a valid spec.
TEST(OwnModels, FlippedBitsNeverGiveABrokenSpec) {
  std::mt19937 random(9);
  int n_specs = 0, n_errors = 0;
  for (const std::string& name : OwnModelNames()) {
    SCOPED_TRACE(name);
    const std::string path = FloatModelPath(name);
    const auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    SpecJudge(**file, *spec).Judge();
    const auto bytes = ReadFile(path, size_t{16} << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    JudgeFlippedBits(*bytes, spec->architecture, &random, &n_specs, &n_errors);
  }
  EXPECT_GT(n_specs, 100);
  EXPECT_GT(n_errors, 100);
}

// Without reference data the suites above lack most models; say so instead of passing.
TEST(GoldensTest, ReferenceDataIsThere) {
  WEFT_REQUIRE_GOLDENS();
  EXPECT_FALSE(FloatModelNames().empty());
  EXPECT_FALSE(QuantizedModelNames().empty());
}

}  // namespace
}  // namespace weft::testing
