// Sampling from the device's candidates draws the same token as sampling from the whole row, and in
// an engine no whole row of logits crosses the bus.
#include "compute/gpu/best_finder.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/device/emulated_device.h"
#include "compute/gpu/builder.h"
#include "compute/gpu/gpu_backend.h"
#include "engine/sampling/sampler.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/wrapped_backend.h"
#include "weft/engine.h"

namespace weft::gpu {
namespace {

using weft::testing::Greedy;
using weft::testing::RandomTokens;
using weft::testing::TurnOutcome;
using weft::testing::WrappedBackend;
using weft::testing::WrappedExecutor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row and the options for sampling from it.
struct Draw {
  std::vector<float> row;
  SamplingOptions options;
  uint64_t seed = 0;
  std::vector<TokenId> context, guesses, banned;
  std::vector<uint32_t> allowed;

  int64_t n_vocab() const { return std::ssize(row); }
  int64_t position() const { return std::ssize(context) + std::ssize(guesses); }
};

// Samples on the host, which changes the row.
TokenId SampleWhole(const Draw& draw, std::vector<float>* row) {
  *row = draw.row;
  for (const TokenId token : draw.banned) (*row)[static_cast<size_t>(token)] = -kInfinity;
  std::vector<TokenId> context = draw.context;
  context.insert(context.end(), draw.guesses.begin(), draw.guesses.end());
  return Sampler(draw.options, draw.seed).Sample(*row, context, draw.position(), draw.allowed);
}

// A finder with a device of its own, for one vocabulary size.
class OnDevice {
 public:
  explicit OnDevice(int64_t n_vocab) : n_vocab_(n_vocab) {
    stream_ = *device_.NewStream();
    finder_ = *BestFinder::New(&device_, n_vocab, kMaxRows);
    logits_ = *device_.Allocate(kMaxRows * n_vocab * 4);
    n_rows_ = *device_.Allocate(4);
  }

  struct Found {
    std::vector<TokenLogit> best;
    double weight = 0;
    std::vector<float> row;  // as changed
  };
  // One row of each draw, all in a step.
  std::vector<Found> Find(const std::vector<Draw>& draws, const std::vector<Sampler*>& samplers) {
    const size_t n = draws.size();
    std::vector<std::vector<LogitChange>> changes(n);
    std::vector<RowChanges> rows(n);
    std::vector<StepSequence> sequences(n);
    std::vector<TokenLogit> any(1);
    for (size_t i = 0; i < n; ++i) {
      const Draw& draw = draws[i];
      samplers[i]->ChangesFor(draw.context, draw.guesses, draw.banned, &changes[i]);
      rows[i] = {.logits = changes[i], .allowed = draw.allowed};
      const Sampler::Needed needed = samplers[i]->NeededOfChanged(n_vocab_);
      sequences[i].n_logits = 1;
      sequences[i].n_best = needed.n_best;
      sequences[i].temperature = needed.temperature;
      sequences[i].changes = std::span(rows).subspan(i, 1);
      std::ranges::copy(draw.row, logits_->As<float>() + static_cast<int64_t>(i) * n_vocab_);
    }
    *n_rows_->As<int32_t>() = static_cast<int32_t>(n);
    EXPECT_TRUE(finder_->Fill({.sequences = sequences, .best = any}, stream_.get()).ok());
    const auto n_rows = static_cast<int64_t>(n);
    const Asked asked = finder_->AskedOf(0, n_rows);
    finder_->Launch(0, asked, {logits_->As<float>(), n_vocab_}, {n_rows_->As<int32_t>(), n_rows},
                    Launches(stream_.get()));
    finder_->EnqueueCopies(asked, n_rows, stream_.get());
    const Status status = stream_->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    std::vector<Found> found(n);
    for (size_t i = 0; i < n; ++i) {
      const auto row = static_cast<int64_t>(i);
      const device::BestToken* const best = finder_->best(row);
      for (int64_t k = 0; k < finder_->n_best(0, row); ++k) {
        found[i].best.push_back({best[k].token, best[k].logit});
      }
      if (finder_->weighs(0, row)) found[i].weight = finder_->weight(row);
      const float* const changed = logits_->As<float>() + row * n_vocab_;
      found[i].row.assign(changed, changed + n_vocab_);
    }
    return found;
  }

 private:
  static constexpr int64_t kMaxRows = 8;
  const int64_t n_vocab_;
  device::EmulatedDevice device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<BestFinder> finder_;
  std::unique_ptr<device::Memory> logits_, n_rows_;
};

// Random cases: rows as peaked as a trained model's, or flat; with equal logits, few tokens left,
// penalties over windows, draft tokens, biases up to infinity, bans and masks.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  Draw Next(int64_t n_vocab) {
    Draw draw;
    draw.seed = random_();
    draw.options = Options(n_vocab);
    const float spread = OneOf({0.5f, 3.0f, 8.0f});
    std::normal_distribution<float> normal(1, spread);
    for (int64_t i = 0; i < n_vocab; ++i) draw.row.push_back(normal(random_));
    if (Chance(4)) {
      for (float& logit : draw.row) logit = std::round(logit);
    }
    if (Chance(8)) std::fill(draw.row.begin() + 9, draw.row.end(), -kInfinity);
    draw.context = Tokens(n_vocab, static_cast<int64_t>(random_() % 200));
    draw.guesses = Tokens(n_vocab, Chance(2) ? static_cast<int64_t>(random_() % 9) : 0);
    draw.banned = Tokens(n_vocab, static_cast<int64_t>(random_() % 4));
    if (Chance(3)) {
      draw.allowed.resize(static_cast<size_t>((n_vocab + 31) / 32));
      const bool few = Chance(2);
      for (uint32_t& word : draw.allowed) {
        word = static_cast<uint32_t>(random_());
        if (few && !Chance(5)) word = 0;
      }
    }
    return draw;
  }

 private:
  bool Chance(uint64_t n) { return random_() % n == 0; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return *(values.begin() + random_() % values.size());
  }
  std::vector<TokenId> Tokens(int64_t n_vocab, int64_t n) {
    std::vector<TokenId> tokens;
    // Some tokens repeat far more often than others, as in a text.
    const auto most = static_cast<uint64_t>(Chance(2) ? std::min<int64_t>(n_vocab, 12) : n_vocab);
    for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(random_() % most));
    return tokens;
  }
  SamplingOptions Options(int64_t n_vocab) {
    SamplingOptions options;
    options.temperature = OneOf({0.0f, 0.3f, 0.8f, 1.0f, 1.7f});
    options.top_k = OneOf({0, 0, 0, 1, 40, static_cast<int>(n_vocab) + 1});
    options.top_p = OneOf({1.0f, 1.0f, 0.95f, 0.5f});
    options.min_p = OneOf({0.0f, 0.0f, 0.05f});
    if (Chance(2)) options.repetition_penalty = OneOf({0.8f, 1.3f});
    if (Chance(2)) options.frequency_penalty = OneOf({-0.4f, 0.7f});
    if (Chance(2)) options.presence_penalty = 0.3f;
    options.penalty_window = OneOf({-1, 0, 1, 16, 64});
    const uint64_t n_bias = Chance(2) ? random_() % 6 : 0;
    for (uint64_t i = 0; i < n_bias; ++i) {
      const float bias = OneOf({-100.0f, -1.5f, 2.0f, 5.0f, -kInfinity});
      options.logit_bias.emplace_back(
          static_cast<TokenId>(random_() % std::min<int64_t>(n_vocab, 20)), bias);
    }
    if (Chance(20)) options.logit_bias.emplace_back(3, kInfinity);
    return options;
  }

  std::mt19937_64 random_;
};

TEST(BestFinderTest, WhatIsDrawnIsWhatTheWholeRowGives) {
  Draws draws(17);
  int n_drawn = 0, n_whole = 0, n_none = 0;
  for (const int64_t n_vocab : {40, 333, 1024, 4099, 9000}) {
    OnDevice device(n_vocab);
    for (int round = 0; round < 25; ++round) {
      std::vector<Draw> step;
      std::vector<Sampler> samplers;
      std::vector<Sampler*> pointers;
      const auto n_rows = static_cast<size_t>(1 + round % 5);
      step.reserve(n_rows);
      samplers.reserve(n_rows);
      pointers.reserve(n_rows);
      for (size_t i = 0; i < n_rows; ++i) step.push_back(draws.Next(n_vocab));
      for (const Draw& draw : step) samplers.emplace_back(draw.options, draw.seed);
      for (Sampler& sampler : samplers) pointers.push_back(&sampler);
      const auto found = device.Find(step, pointers);
      for (size_t i = 0; i < step.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << n_vocab << ", round " << round << ", row " << i);
        std::vector<float> row;
        const TokenId wanted = SampleWhole(step[i], &row);
        // Tokens that cannot be sampled may differ in the reason (-infinity or NaN).
        const auto never = [](float logit) { return !(logit > -kInfinity); };
        const auto same = [&](float a, float b) { return a == b || (never(a) && never(b)); };
        EXPECT_TRUE(std::ranges::equal(found[i].row, row, same));
        ASSERT_FALSE(std::isnan(found[i].best[0].logit));
        const auto drawn =
            samplers[i].SampleChanged(found[i].best, found[i].weight, n_vocab, step[i].position());
        ++n_drawn;
        if (!drawn) ++n_whole;
        if (wanted == kNoToken) ++n_none;
        EXPECT_EQ(drawn ? *drawn : samplers[i].SampleChanged(found[i].row, step[i].position()),
                  wanted);
      }
    }
  }
  EXPECT_GT(n_whole, 0) << "none goes beyond the best tokens: nothing is seen of what then happens";
  EXPECT_LT(n_whole, n_drawn / 4) << "of " << n_drawn;
  EXPECT_GT(n_none, 0);
}

// The weight is exact to the bit, even where the sampled token does not depend on it.
TEST(BestFinderTest, TheWeightIsTheHosts) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 4);
  for (const int64_t n_vocab : {1, 15, 16, 17, 1023, 1024, 1025, 5000, 12289}) {
    OnDevice device(n_vocab);
    for (const float temperature : {0.1f, 1.0f, 2.5f}) {
      Draw draw;
      draw.options = {.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0};
      for (int64_t i = 0; i < n_vocab; ++i) draw.row.push_back(normal(random));
      Sampler sampler(draw.options, 1);
      const auto found = device.Find({draw}, {&sampler});
      const double wanted = TotalWeight(draw.row, Greatest(draw.row), temperature);
      EXPECT_EQ(std::bit_cast<uint64_t>(found[0].weight), std::bit_cast<uint64_t>(wanted))
          << n_vocab << " at " << temperature;
    }
  }
}

// Broken rows are detected whatever changes hide the broken value.
TEST(BestFinderTest, ARowThatHoldsNoNumbersIsSeen) {
  constexpr int64_t kVocab = 5000;
  OnDevice device(kVocab);
  for (const float broken : {std::nanf(""), kInfinity, -kInfinity}) {
    for (const size_t at : {size_t{0}, size_t{4500}}) {
      Draw draw;
      draw.row.assign(kVocab, -kInfinity);
      if (broken > 0 || std::isnan(broken)) draw.row.assign(kVocab, 1);
      draw.row[at] = broken;
      draw.options = SamplingOptions::Greedy();
      draw.options.logit_bias = {{static_cast<TokenId>(at), -kInfinity}, {7, 3.0f}};
      draw.allowed.assign((kVocab + 31) / 32, 1);
      draw.banned = {static_cast<TokenId>(at)};
      Sampler sampler(draw.options, 1);
      EXPECT_TRUE(std::isnan(device.Find({draw}, {&sampler})[0].best[0].logit)) << broken;
    }
  }
  // Also if nothing of a sound row is allowed.
  Draw draw;
  draw.row.assign(kVocab, 1);
  draw.allowed.assign((kVocab + 31) / 32, 0);
  Sampler sampler(draw.options, 1);
  const auto found = device.Find({draw}, {&sampler});
  EXPECT_EQ(found[0].best[0].logit, -kInfinity);
  EXPECT_EQ(sampler.SampleChanged(found[0].best, found[0].weight, kVocab, 0), kNoToken);
}

// Counts the rows of logits that reach the host: requested ones, and those read afterwards.
class CountsRows : public WrappedBackend {
 public:
  explicit CountsRows(bool changes_rows)
      : WrappedBackend(EmulatedBackend()),
        capabilities_(changes_rows ? WrappedBackend::capabilities()
                                   : weft::testing::WithoutBest(WrappedBackend::capabilities())) {}
  const BackendCapabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(auto executor,
                          WrappedBackend::NewExecutor(std::move(weights), state, options));
    return std::make_unique<Counting>(std::move(executor), this);
  }

  mutable std::atomic<int> found{0}, whole{0}, read{0};

 private:
  class CountingRun : public StepRun {
   public:
    CountingRun(std::unique_ptr<StepRun> inner, const CountsRows* counts)
        : inner_(std::move(inner)), counts_(*counts) {}
    StatusOr<bool> Advance(FunctionRef<bool()> pause) override { return inner_->Advance(pause); }
    Status ReadRow(int64_t row, std::span<float> logits) override {
      ++counts_.read;
      return inner_->ReadRow(row, logits);
    }

   private:
    const std::unique_ptr<StepRun> inner_;
    const CountsRows& counts_;
  };
  class Counting : public WrappedExecutor {
   public:
    Counting(std::unique_ptr<Executor> inner, const CountsRows* counts)
        : WrappedExecutor(std::move(inner)), counts_(*counts) {}
    StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
      for (const StepSequence& sequence : step.sequences) {
        const auto n = static_cast<int>(sequence.n_logits);
        (sequence.n_best > 0 ? counts_.found : counts_.whole) += n;
      }
      WEFT_ASSIGN_OR_RETURN(auto run, WrappedExecutor::Begin(step));
      return std::make_unique<CountingRun>(std::move(run), &counts_);
    }

   private:
    const CountsRows& counts_;
  };

  const BackendCapabilities capabilities_;
};

struct EngineCase {
  std::string name;
  TurnOptions turn;
  bool sends_rows = false;
};

std::vector<EngineCase> EngineCases() {
  TurnOptions drawn = Greedy(RandomTokens(10, 1), 24);
  drawn.sampling = SamplingOptions();
  drawn.sampling.seed = 5;
  std::vector<EngineCase> cases;
  const auto add = [&](std::string name, bool sends_rows, auto change) {
    cases.push_back({std::move(name), drawn, sends_rows});
    change(&cases.back().turn);
  };
  add("as by default", false, [](TurnOptions*) {});
  add("greedy", false, [](auto* t) { t->sampling = SamplingOptions::Greedy(); });
  add("penalties", false, [](auto* t) {
    t->sampling.repetition_penalty = 1.2f;
    t->sampling.frequency_penalty = 0.3f;
  });
  // The text repeats itself, so drafts are accepted.
  add("penalties and guesses", false, [](auto* t) {
    t->sampling = SamplingOptions::Greedy();
    t->sampling.frequency_penalty = 0.01f;
    t->sampling.penalty_window = -1;
    t->max_tokens = 150;
  });
  add("bias", false, [](auto* t) { t->sampling.logit_bias = {{70, 6.0f}, {71, -kInfinity}}; });
  add("all tokens", false, [](auto* t) { t->sampling.top_k = 0; });
  add("all tokens, drawn flatly", false, [](auto* t) {
    t->sampling.top_k = 0;
    t->sampling.min_p = 0;
    t->sampling.top_p = 1;
    t->sampling.temperature = 1.5f;
  });
  add("ends", false, [](auto* t) {
    t->ignore_eos = false;
    t->min_tokens = 5;
    t->stop_tokens = {300, 301};
  });
  add("mask", false, [](auto* t) { t->token_mask = weft::testing::Script({70, 71, 72}); });
  add("choices", false, [](auto* t) { t->n_choices = 3; });
  add("probabilities", true, [](auto* t) { t->top_logprobs = 2; });
  return cases;
}

TEST(BestFinderTest, AnEngineDrawsWithoutVocabularies) {
  int n_read = 0;
  for (const EngineCase& test : EngineCases()) {
    SCOPED_TRACE(test.name);
    std::vector<std::vector<TokenId>> said;
    for (const bool changes_rows : {true, false}) {
      const CountsRows backend(changes_rows);
      EngineOptions options;
      options.memory_bytes = int64_t{16} << 20;
      options.max_step_tokens = 64;
      const auto engine = Engine::Start(weft::testing::TinyModel("llama", 1, &backend), options);
      ASSERT_TRUE(engine.ok()) << engine.status();
      const auto session = (*engine)->CreateSession({});
      ASSERT_TRUE(session.ok());
      backend.found = backend.whole = backend.read = 0;
      const TurnOutcome outcome = weft::testing::RunTurn(engine->get(), *session, test.turn);
      EXPECT_TRUE(outcome.done().status.ok()) << outcome.done().status;
      for (const auto& choice : outcome.choices) said.push_back(choice.tokens);
      if (changes_rows) {
        EXPECT_EQ(backend.whole > 0, test.sends_rows);
        EXPECT_EQ(backend.found > 0, !test.sends_rows);
        n_read += backend.read;
      } else {
        EXPECT_EQ(backend.found, 0);
        EXPECT_EQ(backend.read, 0);
      }
    }
    const auto half = said.begin() + std::ssize(said) / 2;
    EXPECT_TRUE(std::equal(said.begin(), half, half, said.end()));
  }
  EXPECT_GT(n_read, 0) << "no draw went beyond the best tokens";
}

}  // namespace
}  // namespace weft::gpu
