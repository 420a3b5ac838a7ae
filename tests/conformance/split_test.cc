// A model that two backends compute has the bits of its parts: cut anywhere, two of one backend
// give what that one gives alone, and two of different ones what the same-bits rule says.
#include <algorithm>
#include <string>
#include <vector>

#include "compute/split/expert_backend.h"
#include "compute/split/expert_spec.h"
#include "compute/split/split_backend.h"
#include "compute/split/split_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tests/support/wrapped_backend.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string model;
  std::string backend;  // for both parts
  std::string beside;   // for the back part, if it differs
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const bool emulates = (*FindBackend("emu"))->Available().ok();
  for (const auto& model : FloatModelNames()) {
    cases.push_back({model, "cpu", "reference"});
    if (emulates && RunsHere("emu", model)) cases.push_back({model, "emu", "cpu"});
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return CaseNameOf(info.param.backend, info.param.model);
}

class SplitTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto run = ReadShortRun(GetParam().model);
    ASSERT_TRUE(run.ok()) << run.status();
    tokens_ = run->tokens;
    tokens_.resize(40);
    const auto file = ModelFile::Open(FloatModelPath(GetParam().model));
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *file;
    auto spec = BuildModelSpec(*file_, {.context_tokens = run->context_tokens});
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec_ = *std::move(spec);
    const auto whole = Load(*FindBackend(GetParam().backend));
    if (whole.status().code() == StatusCode::kUnimplemented) {
      GTEST_SKIP() << Message(whole.status());
    }
    ASSERT_TRUE(whole.ok()) << whole.status();
    auto logits = RunTokens(*whole, tokens_);
    ASSERT_TRUE(logits.ok()) << logits.status();
    whole_ = *std::move(logits);
  }

  StatusOr<LoadedModel> Load(const Backend* backend) const {
    LoadedModel model{.backend = backend, .weights = nullptr};
    WEFT_ASSIGN_OR_RETURN(model.weights, backend->Load(file_, spec_, {.n_threads = 1}));
    return model;
  }

  // Whether the model can be cut there, and if not, whether it says so.
  bool CanBeCut(int n_front) const {
    const auto parts = split::Split(spec_, n_front);
    if (parts.ok()) return true;
    EXPECT_EQ(parts.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(Message(parts.status())), HasSubstr(spec_.architecture));
    return false;
  }

  // In steps of eight tokens, with others before them, the logits have the same bits.
  void ExpectSameBesideOthers(const LoadedModel& model, const std::vector<float>& at_once) const {
    const auto runner = ModelRunner::New(model, {.page_seed = 5});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const int mine = (*runner)->Add(), other = (*runner)->Add();
    std::vector<float> in_pieces;
    for (size_t at = 0; at < tokens_.size(); at += 8) {
      const std::vector<ModelRunner::Part> parts = {{other, std::span(tokens_).first(3), 0},
                                                    {mine, std::span(tokens_).subspan(at, 8)}};
      const auto logits = (*runner)->Step(parts);
      ASSERT_TRUE(logits.ok()) << logits.status();
      in_pieces.insert(in_pieces.end(), logits->begin(), logits->end());
    }
    EXPECT_TRUE(SameBytes(in_pieces, at_once));
  }

  std::shared_ptr<const ModelFile> file_;
  ModelSpec spec_;
  std::vector<TokenId> tokens_;
  std::vector<float> whole_;
};

TEST_P(SplitTest, TwoPartsOfOneBackendHaveItsBitsWhereverTheModelIsCut) {
  const Backend* const backend = *FindBackend(GetParam().backend);
  for (int n_front = 1; n_front < std::ssize(spec_.layers); ++n_front) {
    if (!CanBeCut(n_front)) continue;
    const auto both = NewSplitBackend(backend, backend, spec_, n_front);
    ASSERT_TRUE(both.ok()) << both.status();
    const auto model = Load(both->get());
    ASSERT_TRUE(model.ok()) << model.status();
    RunnerOptions options;
    options.page_seed = static_cast<uint64_t>(n_front);
    options.drop_behind_window = true;
    const auto logits = RunTokens(*model, tokens_, std::vector<int64_t>{17, 1, 9}, options);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(SameBytes(*logits, whole_)) << "cut after layer " << n_front;
  }
}

// Two backends give the same bits however a text is fed, close to the logits of one.
TEST_P(SplitTest, TwoBackendsKeepTheSameBitsRule) {
  const Backend* const back = *FindBackend(GetParam().backend);
  const Backend* const front = *FindBackend(GetParam().beside);
  const int n_front = static_cast<int>(spec_.layers.size()) / 2;
  if (n_front == 0 || !CanBeCut(n_front)) GTEST_SKIP() << "it cannot be cut in the middle";
  const auto both = NewSplitBackend(front, back, spec_, n_front);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE((*both)->capabilities().same_bits);
  const auto model = Load(both->get());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto at_once = RunTokens(*model, tokens_);
  ASSERT_TRUE(at_once.ok()) << at_once.status();
  EXPECT_LE(MaxDifference(*at_once, whole_), 1e-3);

  ExpectSameBesideOthers(*model, *at_once);
}

// The rows of a mixture go down to the host and back: in steps of one row and of many, cut in all
// ways, next to others.
TEST_P(SplitTest, ExpertsOnTheHostKeepTheSameBitsRule) {
  const Backend* const device = *FindBackend(GetParam().backend);
  if (!device->capabilities().host_experts) GTEST_SKIP() << "it leaves no experts to the host";
  const int n_layers = split::LayersWithExperts(spec_, static_cast<int>(spec_.layers.size()));
  if (n_layers == 0) GTEST_SKIP() << "it has no mixtures of experts";
  const WatchedDevice watched(device);
  int64_t n_mixtures = 0;
  for (int n = 1; n <= n_layers; ++n) {
    if (split::LayersWithExperts(spec_, n) != n) continue;
    const auto both = NewExpertBackend(*FindBackend("cpu"), &watched, n);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_TRUE((*both)->capabilities().same_bits);
    const auto model = Load(both->get());
    ASSERT_TRUE(model.ok()) << model.status();
    const auto at_once = RunTokens(*model, tokens_);
    ASSERT_TRUE(at_once.ok()) << at_once.status();
    EXPECT_LE(MaxDifference(*at_once, whole_), 1e-3) << n;
    ++n_mixtures;
    EXPECT_EQ(watched.experts->n_calls, n_mixtures) << "one step, and a mixture in each layer";
    RunnerOptions options;
    options.page_seed = static_cast<uint64_t>(n);
    const auto in_pieces = RunTokens(*model, tokens_, std::vector<int64_t>{17, 1, 9}, options);
    ASSERT_TRUE(in_pieces.ok()) << in_pieces.status();
    EXPECT_TRUE(SameBytes(*in_pieces, *at_once)) << n;
    ExpectSameBesideOthers(*model, *at_once);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, SplitTest, ::testing::ValuesIn(Cases()), CaseName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SplitTest);

}  // namespace
}  // namespace weft::testing
