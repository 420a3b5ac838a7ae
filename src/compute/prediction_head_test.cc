// Prediction heads on the backends that support them: against plain loops over the file's values,
// and against each other.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compute/backend.h"
#include "compute/spec_tensors.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"

namespace weft {
namespace {

using Values = std::vector<double>;

std::shared_ptr<const ModelFile> FileOf(const std::string& name) {
  auto file = ModelFile::Open(testing::TinyModelFile(name));
  EXPECT_TRUE(file.ok()) << file.status();
  return *file;
}

std::vector<float> RandomHidden(int64_t n_values) {
  std::mt19937 random(7);
  std::vector<float> hidden(static_cast<size_t>(n_values));
  for (float& value : hidden) value = std::uniform_real_distribution<float>(-2, 2)(random);
  return hidden;
}

// A head on a backend, with state for one text.
class Head {
 public:
  Head(const char* backend, const std::shared_ptr<const ModelFile>& file)
      : backend_(**FindBackend(backend)) {
    auto spec = BuildModelSpec(*file, {});
    EXPECT_TRUE(spec.ok() && spec->prediction_head) << spec.status();
    const ModelSpec head = *spec->prediction_head;
    model_ = *backend_.Load(file, *std::move(spec), {});
    auto weights = backend_.Load(file, head, {.beside = model_});
    EXPECT_TRUE(weights.ok()) << weights.status();
    weights_ = *weights;
    state_ = *backend_.NewState(*weights_, {.kv_type = DType::kF32});
    EXPECT_TRUE(state_->GrowPages(0, 8).ok());
    executor_ = *backend_.NewExecutor(weights_, state_.get(), {.n_threads = 1});
  }

  const ModelSpec& spec() const { return weights_->spec(); }
  const Weights& weights() const { return *weights_; }
  const Weights& model() const { return *model_; }
  StatusOr<std::vector<float>> Compute(std::span<const TokenId> tokens,
                                       std::span<const float> hidden, int64_t position) {
    const std::vector<PageId> pages{0, 1, 2, 3};
    StepSequence sequence{.tokens = tokens, .hidden = hidden, .position = position};
    sequence.page_tables = {pages};
    sequence.n_logits = std::ssize(tokens);
    std::vector<float> logits(tokens.size() * static_cast<size_t>(spec().n_vocab));
    WEFT_RETURN_IF_ERROR(
        executor_->Forward({.sequences = std::span(&sequence, 1), .logits = logits}));
    return logits;
  }

 private:
  const Backend& backend_;
  std::shared_ptr<const Weights> model_, weights_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Executor> executor_;
};

// An independent implementation of a qwen35 file's head, from public knowledge of such heads: it
// uses neither the spec nor a backend.
class PlainHead {
 public:
  explicit PlainHead(const ModelFile& file) : file_(file) {}

  Values LogitsOf(std::span<const TokenId> tokens, std::span<const float> hidden) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Values table = Of("token_embd");
      const auto row = table.begin() + tokens[i] * kWidth;
      const Values e = Normed(Values(row, row + kWidth), Of(kLayer + "nextn.enorm"));
      const auto from = hidden.begin() + static_cast<int64_t>(i) * kWidth;
      const Values h = Normed(Values(from, from + kWidth), Of(kLayer + "nextn.hnorm"));
      Values both = e;
      both.insert(both.end(), h.begin(), h.end());
      Values x = Times(kLayer + "nextn.eh_proj", both);
      Add(Attend(Normed(x, Of(kLayer + "attn_norm")), static_cast<double>(i)), &x);
      Add(FeedForward(Normed(x, Of(kLayer + "post_attention_norm"))), &x);
      const Values of_row = Times("output", Normed(x, Of(kLayer + "nextn.shared_head_norm")));
      logits_.insert(logits_.end(), of_row.begin(), of_row.end());
    }
    return logits_;
  }

 private:
  static constexpr int64_t kWidth = 64, kHeads = 2, kDim = 32, kTurned = 16;
  const std::string kLayer = "blk.2.";

  Values Of(const std::string& name) const {
    const int index = file_.FindTensor(name + ".weight");
    EXPECT_GE(index, 0) << name;
    const std::vector<float> values = ValuesOf(file_.tensors()[static_cast<size_t>(index)]);
    return {values.begin(), values.end()};
  }
  Values Times(const std::string& name, const Values& x) const {
    const Values matrix = Of(name);
    Values out(matrix.size() / x.size());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = std::inner_product(x.begin(), x.end(),
                                  matrix.begin() + static_cast<int64_t>(i * x.size()), 0.0);
    }
    return out;
  }
  static Values Normed(Values x, const Values& weight) {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    return x;
  }
  static void Add(const Values& y, Values* x) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }
  static Values Turned(Values head, double position) {
    for (int64_t i = 0; i < kTurned / 2; ++i) {
      const double angle =
          position * std::pow(1e4, -2.0 * static_cast<double>(i) / double{kTurned});
      double &a = head[i], &b = head[i + kTurned / 2];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
    return head;
  }
  Values Attend(const Values& x, double position) {
    const Values queries = Times(kLayer + "attn_q", x);  // queries and gates, alternating by head
    keys_.push_back(
        Turned(Normed(Times(kLayer + "attn_k", x), Of(kLayer + "attn_k_norm")), position));
    values_.push_back(Times(kLayer + "attn_v", x));
    Values out;
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto q = queries.begin() + head * 2 * kDim;
      const Values query = Turned(Normed({q, q + kDim}, Of(kLayer + "attn_q_norm")), position);
      Values weights, sum(kDim, 0);
      for (const Values& key : keys_) {
        const double dot = std::inner_product(query.begin(), query.end(), key.begin(), 0.0);
        weights.push_back(std::exp(dot / std::sqrt(double{kDim})));
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t j = 0; j < values_.size(); ++j) {
        for (int64_t i = 0; i < kDim; ++i) sum[i] += weights[j] / total * values_[j][i];
      }
      for (int64_t i = 0; i < kDim; ++i) out.push_back(sum[i] / (1 + std::exp(-q[kDim + i])));
    }
    return Times(kLayer + "attn_output", out);
  }
  Values FeedForward(const Values& x) const {
    Values gate = Times(kLayer + "ffn_gate", x);
    const Values up = Times(kLayer + "ffn_up", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return Times(kLayer + "ffn_down", gate);
  }

  const ModelFile& file_;
  std::vector<Values> keys_, values_;
  Values logits_;
};

template <typename A, typename B>
double LargestDifference(const A& a, const B& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

TEST(PredictionHeadTest, SaysWhatPlainSumsSay) {
  const auto file = FileOf("qwen35-mtp");
  const std::vector<TokenId> tokens = testing::RandomTokens(12, 3);
  const std::vector<float> hidden = RandomHidden(12 * 64);
  const Values plain = PlainHead(*file).LogitsOf(tokens, hidden);
  const auto reference = Head("reference", file).Compute(tokens, hidden, 0);
  ASSERT_TRUE(reference.ok()) << reference.status();
  double largest = 0;
  for (const double value : plain) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 1);
  EXPECT_LT(LargestDifference(*reference, plain), 1e-4);
}

TEST(PredictionHeadTest, BackendsAgree) {
  for (const char* name : {"qwen35-mtp", "glm4moe-mtp"}) {
    SCOPED_TRACE(name);
    const auto file = FileOf(name);
    const std::vector<TokenId> tokens = testing::RandomTokens(40, 3);
    const std::vector<float> hidden = RandomHidden(40 * 64);
    const auto reference = Head("reference", file).Compute(tokens, hidden, 0);
    const auto cpu = Head("cpu", file).Compute(tokens, hidden, 0);
    const auto gpu = Head("emu", file).Compute(tokens, hidden, 0);
    ASSERT_TRUE(reference.ok() && cpu.ok() && gpu.ok());
    EXPECT_LT(LargestDifference(*reference, *cpu), 0.15);  // 8-bit weights
    EXPECT_LT(LargestDifference(*reference, *gpu), 0.15);
  }
}

TEST(PredictionHeadTest, HasTheSameBitsInAnySteps) {
  for (const char* backend : {"cpu", "emu", "reference"}) {
    const auto file = FileOf("qwen35-mtp");
    const std::vector<TokenId> tokens = testing::RandomTokens(24, 3);
    const std::vector<float> hidden = RandomHidden(24 * 64);
    const auto whole = Head(backend, file).Compute(tokens, hidden, 0);
    ASSERT_TRUE(whole.ok()) << whole.status();
    Head head(backend, file);
    std::vector<float> parts;
    for (const auto& [first, n] : {std::pair<size_t, size_t>{0, 1}, {1, 7}, {8, 16}}) {
      const auto part =
          head.Compute(std::span(tokens).subspan(first, n),
                       std::span(hidden).subspan(first * 64, n * 64), static_cast<int64_t>(first));
      ASSERT_TRUE(part.ok()) << part.status();
      parts.insert(parts.end(), part->begin(), part->end());
    }
    EXPECT_EQ(parts, *whole);
  }
}

TEST(PredictionHeadTest, NeedsItsHiddenValues) {
  const auto file = FileOf("qwen35-mtp");
  const std::vector<TokenId> tokens{5, 6};
  for (const char* backend : {"cpu", "emu", "reference"}) {
    Head head(backend, file);
    EXPECT_FALSE(head.Compute(tokens, {}, 0).ok());
    EXPECT_FALSE(head.Compute(tokens, RandomHidden(64), 0).ok());
    EXPECT_TRUE(head.Compute(tokens, RandomHidden(128), 0).ok());
  }
}

// Next to its model, a head takes memory only for its own tensors.
TEST(PredictionHeadTest, SharesTheModelsMatrices) {
  const auto file = FileOf("qwen35-mtp");
  Head head("cpu", file);
  const Backend& cpu = **FindBackend("cpu");
  const auto alone = cpu.Load(file, head.spec(), {});
  ASSERT_TRUE(alone.ok());
  const int64_t output_bytes = int64_t{64} * head.spec().n_vocab;
  EXPECT_LT(head.weights().memory_bytes() + output_bytes, (*alone)->memory_bytes() + 1);
  EXPECT_LT(head.weights().memory_bytes(), head.model().memory_bytes());
}

TEST(PredictionHeadTest, IsRefusedByNameWhereNoneIsComputed) {
  const auto file = FileOf("qwen35-mtp");
  const auto spec = BuildModelSpec(*file, {});
  for (const std::string_view name : BackendNames()) {
    const Backend& backend = **FindBackend(name);
    if (!backend.Available().ok() || backend.capabilities().prediction_heads) continue;
    const auto weights = backend.Load(file, *spec->prediction_head, {});
    ASSERT_FALSE(weights.ok()) << name;
    EXPECT_EQ(weights.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(Message(weights.status()).find(name), std::string_view::npos);
    EXPECT_TRUE(backend.Load(file, *spec, {}).ok()) << "the model itself runs";
  }
}

// Heads may take values from before the output norm.
TEST(PredictionHeadTest, VectorsComeFromBothSidesOfTheOutputNorm) {
  const auto file = FileOf("glm4moe-mtp");
  const auto spec = BuildModelSpec(*file, {});
  const std::vector<float> weight = ValuesOf(*file, spec->output_norm.weight);
  for (const char* name : {"cpu", "emu", "reference"}) {
    const Backend& backend = **FindBackend(name);
    const auto weights = *backend.Load(file, *spec, {});
    const auto state = *backend.NewState(*weights, {.kv_type = DType::kF32});
    ASSERT_TRUE(state->GrowPages(0, 8).ok());
    const auto executor = *backend.NewExecutor(weights, state.get(), {.n_threads = 1});
    const std::vector<PageId> pages{0, 1};
    const std::vector<TokenId> tokens = testing::RandomTokens(6, 1);
    std::vector<float> vectors[2];
    for (const bool before : {false, true}) {
      StepSequence sequence{.tokens = tokens, .position = 0};
      sequence.page_tables = {pages};
      sequence.n_vectors = 4;
      sequence.vectors_before_norm = before;
      vectors[before].resize(4 * 64);
      ASSERT_TRUE(
          executor->Forward({.sequences = std::span(&sequence, 1), .vectors = vectors[before]})
              .ok());
    }
    for (size_t row = 0; row < 4; ++row) {
      const auto raw = std::span(vectors[1]).subspan(row * 64, 64);
      const double squares = std::inner_product(raw.begin(), raw.end(), raw.begin(), 0.0);
      const double scale = 1 / std::sqrt(squares / 64 + 1e-5);
      EXPECT_GT(std::abs(scale - 1), 1e-3);
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_NEAR(vectors[0][row * 64 + i], raw[i] * scale * weight[i], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace weft
