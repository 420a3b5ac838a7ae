// The same-bits rule: the logits of a sequence are the same bytes however it was fed, whatever
// ran next to it, wherever its state lies, forked, moved, and with any number of threads. On
// backends that do not promise this, logits may differ only by the order of sums.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compute/spec_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/goldens.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft::testing {
namespace {

struct Case {
  std::string backend;
  std::string model;
  bool quantized;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string_view name : UsableBackends()) {
    for (const auto& model : FloatModelNames()) {
      if (RunsHere(name, model)) cases.push_back({std::string(name), model, false});
    }
    for (const auto& model : QuantizedModelNames()) {
      if (!RunsHere(name, model)) continue;
      // The reference decodes every type to floats first, so one type, computed row by row, covers
      // the others.
      const bool one_will_do = name == "reference" || name == "mlx-strict";
      if (one_will_do && model.find("Q4_K") == std::string::npos) continue;
      cases.push_back({std::string(name), model, true});
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return CaseNameOf(info.param.backend, info.param.model);
}

// Without the promise: how far logits may be apart. A sum that differs in its last bit may round
// a stored key or value the other way.
double ToleranceFor(KvTypes kv_type) {
  if (kv_type == DType::kF32) return 1e-3;
  return kv_type == DType::kF16 ? 1e-2 : 5e-2;
}

class SameBitsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    const std::string base = c.model.substr(0, c.model.find('.'));
    const auto run = ReadShortRun(c.quantized ? base : c.model);
    ASSERT_TRUE(run.ok()) << run.status();
    tokens_ = run->tokens;
    tokens_.resize(48);  // three preferred pages
    auto model =
        LoadModel(c.backend, c.quantized ? QuantizedModelPath(c.model) : FloatModelPath(c.model),
                  run->context_tokens);
    if (model.status().code() == StatusCode::kUnimplemented) {
      GTEST_SKIP() << Message(model.status());
    }
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto whole = RunTokens(model_, tokens_);
    ASSERT_TRUE(whole.ok()) << whole.status();
    whole_ = *std::move(whole);
  }

  const BackendCapabilities& capabilities() const { return model_.backend->capabilities(); }
  int64_t n_vocab() const { return model_.weights->spec().n_vocab; }

  bool Agree(std::span<const float> a, std::span<const float> b,
             KvTypes kv_type = DType::kF32) const {
    return capabilities().same_bits ? SameBytes(a, b)
                                    : MaxDifference(a, b) <= ToleranceFor(kv_type);
  }

  // Bytes of the logits of positions [begin, end) of the plain run.
  std::span<const float> Whole(int64_t begin, int64_t end) const {
    return std::span(whole_).subspan(begin * n_vocab(), (end - begin) * n_vocab());
  }

  void ExpectWhole(std::span<const int64_t> chunks, const RunnerOptions& options,
                   const std::string& what) {
    const auto logits = RunTokens(model_, tokens_, chunks, options);
    ASSERT_TRUE(logits.ok()) << what << ": " << logits.status();
    EXPECT_TRUE(Agree(*logits, whole_)) << what;
  }

  std::vector<TokenId> tokens_;
  LoadedModel model_;
  std::vector<float> whole_;  // one step, one thread, pages in order
};

TEST_P(SameBitsTest, ChunksAndThreads) {
  const std::vector<std::vector<int64_t>> cuts = {{1}, {7}, {16}, {3, 1, 30, 2}};
  for (const auto& cut : cuts) ExpectWhole(cut, {}, StrCat(cut[0], " at a time"));
  for (const int n_threads : {2, 3}) {
    RunnerOptions options;
    options.executor.n_threads = n_threads;
    ExpectWhole({}, options, StrCat("one step, ", n_threads, " threads"));
    ExpectWhole(cuts[n_threads % 2], options, StrCat("chunks, ", n_threads, " threads"));
  }
}

TEST_P(SameBitsTest, PagesAnywhereOfAnySize) {
  const std::vector<int64_t> cut = {5};
  bool drop = false;
  for (const int page_tokens : capabilities().page_tokens) {
    RunnerOptions options;
    options.state.page_tokens = page_tokens;
    options.page_seed = 40 + page_tokens;
    options.drop_behind_window = drop = !drop;
    ExpectWhole(cut, options, StrCat("pages of ", page_tokens, drop ? ", dropping" : ""));
  }
}

// Three sequences in every step at random lengths, one of them the prompt under
// test; the other two hold other tokens and want logits of some of them.
TEST_P(SameBitsTest, WhateverRunsBeside) {
  std::mt19937 random(7);
  for (int round = 0; round < 2; ++round) {
    RunnerOptions options;
    options.executor.n_threads = 1 + round % 2;
    options.page_seed = 100 + round;
    const auto runner = ModelRunner::New(model_, options);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const int mine = (*runner)->Add();
    const int others[] = {(*runner)->Add(), (*runner)->Add()};
    const std::vector<TokenId> noise(tokens_.rbegin(), tokens_.rend());
    size_t done = 0;
    while (done < tokens_.size()) {
      const size_t n = std::min<size_t>(1 + random() % 20, tokens_.size() - done);
      std::vector<ModelRunner::Part> parts = {{mine, std::span(tokens_).subspan(done, n)}};
      for (const int other : others) {
        const size_t length = random() % 9;
        const auto n_logits = static_cast<int64_t>(random() % (length + 1));
        if (length > 0) parts.push_back({other, std::span(noise).first(length), n_logits});
      }
      std::ranges::shuffle(parts, random);
      const auto logits = (*runner)->Step(parts);
      ASSERT_TRUE(logits.ok()) << logits.status();
      size_t row = 0;
      for (const auto& part : parts) {
        if (part.sequence == mine) break;
        row += static_cast<size_t>(part.n_logits);
      }
      EXPECT_TRUE(
          Agree(std::span(*logits).subspan(row * n_vocab(), n * n_vocab()), Whole(done, done + n)))
          << "round " << round << ", tokens " << done << " to " << done + n;
      done += n;
    }
  }
}

// A fork continues exactly as its origin does, and neither disturbs the other. So does state that
// was written out and read into another executor. For every KV type.
TEST_P(SameBitsTest, ForkedAndMoved) {
  const std::span<const TokenId> tokens(tokens_);
  constexpr size_t kSplit = 37;  // inside a page
  constexpr KvTypes kMixed = {DType::kQ5_0, DType::kQ4_0};
  for (const KvTypes kv_type : capabilities().kv_types) {
    if (kv_type.keys != kv_type.values && kv_type != kMixed) continue;
    RunnerOptions options;
    options.state.kv_type = kv_type;
    const auto expected = RunTokens(model_, tokens, {}, options);
    if (expected.status().code() == StatusCode::kInvalidArgument) continue;  // rows too short
    ASSERT_TRUE(expected.ok()) << expected.status();
    const std::span<const float> tail = std::span(*expected).subspan(kSplit * n_vocab());

    options.page_seed = 3;
    const auto runner = ModelRunner::New(model_, options);
    options.page_seed = 4;
    const auto other = ModelRunner::New(model_, options);
    ASSERT_TRUE(runner.ok() && other.ok());
    const int origin = (*runner)->Add();
    ASSERT_TRUE((*runner)->Feed(origin, tokens.first(kSplit)).ok());
    const auto fork = (*runner)->Fork(origin);
    ASSERT_TRUE(fork.ok()) << fork.status();
    const auto moved = (*runner)->MoveTo(origin, other->get());
    ASSERT_TRUE(moved.ok()) << moved.status();

    const std::vector<TokenId> detour(20, 5);
    ASSERT_TRUE((*runner)->Feed(*fork, detour).ok());
    const auto by_origin = (*runner)->Feed(origin, tokens.subspan(kSplit));
    ASSERT_TRUE(by_origin.ok());
    EXPECT_TRUE(Agree(*by_origin, tail, kv_type)) << "origin, KV " << NameOf(kv_type);
    const auto by_moved = (*other)->Feed(*moved, tokens.subspan(kSplit));
    ASSERT_TRUE(by_moved.ok());
    EXPECT_TRUE(Agree(*by_moved, tail, kv_type)) << "moved, KV " << NameOf(kv_type);
    const auto second = (*runner)->MoveTo(*fork, other->get());
    ASSERT_TRUE(second.ok());
    const auto fork_on = (*runner)->Feed(*fork, tokens.first(3));
    const auto second_on = (*other)->Feed(*second, tokens.first(3));
    ASSERT_TRUE(fork_on.ok() && second_on.ok());
    EXPECT_TRUE(Agree(*fork_on, *second_on, kv_type)) << "fork, KV " << NameOf(kv_type);
  }
}

// Tokens sent as their input embeddings: all of a prompt or parts of it, in chunks and next to
// other sequences.
TEST_P(SameBitsTest, VectorsInPlaceOfTokens) {
  const Case& c = GetParam();
  const auto file =
      ModelFile::Open(c.quantized ? QuantizedModelPath(c.model) : FloatModelPath(c.model));
  ASSERT_TRUE(file.ok()) << file.status();
  const ModelSpec& spec = model_.weights->spec();
  const auto table = ReadTableRows(**file, spec.embedding, tokens_);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto width = static_cast<size_t>(spec.d_model);
  RunnerOptions options;
  options.page_seed = 9;
  const auto runner = ModelRunner::New(model_, options);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const int other = (*runner)->Add();
  for (const size_t every : {1, 3}) {
    for (const size_t chunk : {tokens_.size(), size_t{7}}) {
      const int mine = (*runner)->Add();
      std::vector<float> logits;
      for (size_t at = 0; at < tokens_.size(); at += chunk) {
        std::vector<TokenId> ids(tokens_.begin() + at,
                                 tokens_.begin() + std::min(at + chunk, tokens_.size()));
        ModelRunner::Part part{mine, ids};
        for (size_t i = 0; i < ids.size(); ++i) {
          if ((at + i) % every != 0) continue;
          part.rows.push_back(std::span(*table).subspan((at + i) * width, width));
          ids[i] = kAnyRow - static_cast<TokenId>(i);
        }
        const ModelRunner::Part beside{other, std::span(tokens_).first(3), 0};
        const auto step = (*runner)->Step(std::vector{beside, part});
        if (!capabilities().rows || !CheckTakesRows(spec).ok()) {
          EXPECT_EQ(step.status().code(), StatusCode::kUnimplemented) << step.status();
          return;
        }
        ASSERT_TRUE(step.ok()) << step.status();
        logits.insert(logits.end(), step->begin(), step->end());
      }
      EXPECT_TRUE(Agree(logits, whole_)) << "every " << every << ", chunks of " << chunk;
    }
  }
}

// Logits of an earlier token see nothing of a later one.
TEST_P(SameBitsTest, TheFutureDoesNotMatter) {
  std::vector<TokenId> changed = tokens_;
  changed[40] = (changed[40] + 1) % static_cast<TokenId>(n_vocab());
  const auto logits = RunTokens(model_, changed);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_TRUE(Agree(std::span(*logits).first(40 * n_vocab()), Whole(0, 40)));
  EXPECT_FALSE(Agree(std::span(*logits).subspan(40 * n_vocab(), n_vocab()), Whole(40, 41)));
}

INSTANTIATE_TEST_SUITE_P(Goldens, SameBitsTest, ::testing::ValuesIn(Cases()), CaseName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SameBitsTest);

}  // namespace
}  // namespace weft::testing
