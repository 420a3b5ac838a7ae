// Same bits: a session's output does not depend on anything else that happened.
//
//   WEFT_PROPERTY_PROGRAMS=N  programs per model (for long or short runs)
//   WEFT_PROPERTY_SEED=S      the first program's seed; a failure prints its own
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/strings.h"
#include "tests/property/program.h"
#include "tests/property/rounding_oracle.h"
#include "tests/support/engine_harness.h"
#include "tests/support/slow_build.h"

namespace weft::testing {
namespace {

constexpr int64_t kPrograms = testing::kSlowBuild ? 6 : 520;
constexpr int64_t kHybridPrograms = testing::kSlowBuild ? 3 : 200;
constexpr int64_t kHeadPrograms = testing::kSlowBuild ? 2 : 60;
constexpr int64_t kMadePrograms = testing::kSlowBuild ? 1 : 20;
constexpr int64_t kAdaptedPrograms = testing::kSlowBuild ? 2 : 60;
constexpr int64_t kMlxPrograms = 6;
constexpr int64_t kEmulatedPrograms = 1;
constexpr uint64_t kFirstSeed = 1;

int64_t NumberFrom(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

// `model_name` is for reports.
void RunPrograms(const std::shared_ptr<const Model>& model, Oracle* oracle,
                 const std::string& model_name, int64_t programs) {
  programs = NumberFrom("WEFT_PROPERTY_PROGRAMS", programs);
  const int64_t first = NumberFrom("WEFT_PROPERTY_SEED", kFirstSeed);
  const auto begin = std::chrono::steady_clock::now();
  ProgramCounts counts;
  for (int64_t i = 0; i < programs; ++i) {
    const uint64_t seed = static_cast<uint64_t>(first + i);
    Program program(model, oracle, seed);
    const std::string failure = program.Run();
    counts.Add(program.counts());
    ASSERT_EQ(failure, "") << "model " << model_name << ", seed " << seed
                           << "; run it alone with WEFT_PROPERTY_PROGRAMS=1 WEFT_PROPERTY_SEED="
                           << seed << "\n"
                           << program.Trace();
  }
  if (programs >= 20 && model->CheckTakesRows().ok()) {
    EXPECT_GT(counts.rows, 0) << model_name;
  }
  if (programs >= 20 && !model->adapters().empty()) {
    EXPECT_GT(counts.adapted, 0) << model_name;
    EXPECT_GT(counts.invocations, 0) << model_name;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%s: %lld programs, %lld operations, %lld turns (%lld cancelled, %lld out of memory), "
      "%lld tokens, %lld rows in prompts, %lld tokens from the cache, %lld forks, %lld restores, "
      "%lld restarts, "
      "%lld preemptions, %lld idle sessions dropped, %lld of %lld guesses right; %.1f s\n",
      model_name.c_str(), static_cast<long long>(programs),
      static_cast<long long>(counts.operations), static_cast<long long>(counts.turns),
      static_cast<long long>(counts.cancelled), static_cast<long long>(counts.out_of_memory),
      static_cast<long long>(counts.tokens), static_cast<long long>(counts.rows),
      static_cast<long long>(counts.cached_tokens), static_cast<long long>(counts.forks),
      static_cast<long long>(counts.restores), static_cast<long long>(counts.restarts),
      static_cast<long long>(counts.preemptions), static_cast<long long>(counts.dropped),
      static_cast<long long>(counts.accepted_guesses),
      static_cast<long long>(counts.guessed_tokens), seconds.count());
}

void RunPrograms(const std::string& model_name, int64_t programs) {
  const auto model = LoadTestModel(model_name);
  Oracle oracle(model);
  RunPrograms(model, &oracle, model_name, programs);
}

TEST(EnginePropertyTest, Llama) { RunPrograms("llama", kPrograms); }
TEST(EnginePropertyTest, Qwen3) { RunPrograms("qwen3", kPrograms); }
TEST(EnginePropertyTest, Gemma3SlidingWindow) { RunPrograms("gemma3", kPrograms); }
TEST(EnginePropertyTest, Qwen3MixtureOfExperts) { RunPrograms("qwen3moe", kPrograms); }

TEST(EnginePropertyTest, Lfm2ShortConvolutions) { RunPrograms("lfm2", kHybridPrograms); }
TEST(EnginePropertyTest, Qwen35DeltaNets) { RunPrograms("qwen35", kHybridPrograms); }
TEST(EnginePropertyTest, Mamba2WithoutAnyPages) { RunPrograms("mamba2", kHybridPrograms); }
// Every step checks that each slot's history is exactly the tokens before the step's.
TEST(EnginePropertyTest, CheckedSlots) { RunPrograms("recurrent-qwen3", kHybridPrograms); }
TEST(EnginePropertyTest, CheckedSlotsBesideWindows) {
  RunPrograms("recurrent-gemma3", kHybridPrograms);
}

// The device kernels in the emulator, which is too slow with a sanitizer.
TEST(EnginePropertyTest, Emulated) {
  if (testing::kSlowBuild) GTEST_SKIP() << "the emulator is slow enough";
  for (const char* name :
       {"emu-llama", "emu-gemma3", "emu-qwen3moe", "emu-lfm2", "emu-qwen35", "emu-mamba2"}) {
    RunPrograms(name, kEmulatedPrograms);
    if (HasFatalFailure()) return;
  }
}

void RunHeadPrograms(const char* name, const char* backend, int64_t programs) {
  ModelOptions options;
  options.backend = backend;
  options.n_threads = 1;
  options.context_tokens = 2048;  // longer than any program's session
  const auto model = Model::Load(TinyModelFile(name), options);
  ASSERT_TRUE(model.ok()) << model.status();
  Oracle oracle(*model);
  RunPrograms(*model, &oracle, StrCat(backend, " ", name), programs);
}

// Heads that are almost never right, and heads that are always right in greedy turns.
TEST(EnginePropertyTest, PredictionHeads) {
  for (const char* name :
       {"qwen35-mtp", "glm4moe-mtp", "foreseeing-qwen35-mtp", "foreseeing-glm4moe-mtp"}) {
    RunHeadPrograms(name, "cpu", kHeadPrograms);
    if (HasFatalFailure()) return;
  }
}

TEST(EnginePropertyTest, EmulatedPredictionHeads) {
  if (testing::kSlowBuild) GTEST_SKIP() << "the emulator is slow enough";
  for (const char* name : {"qwen35-mtp", "foreseeing-glm4moe-mtp"}) {
    RunHeadPrograms(name, "emu", kEmulatedPrograms);
    if (HasFatalFailure()) return;
  }
}

// Sessions with and without adapters, several in one step, found again after restarts.
TEST(EnginePropertyTest, Adapters) {
  for (const char* name : {"lora-tiny-llama", "lora-tiny-moe", "lora-tiny-qwen35"}) {
    RunPrograms(name, kAdaptedPrograms);
    if (HasFatalFailure()) return;
  }
}

TEST(EnginePropertyTest, MadeModels) {
  for (const char* name :
       {"tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-moe", "tiny-lfm2", "tiny-qwen35",
        "tiny-qwen35-mtp", "tiny-mamba2", "tiny-granitehybrid", "tiny-deepseek4"}) {
    RunPrograms(name, kMadePrograms);
    if (HasFatalFailure()) return;
  }
}

// The mlx backend, if it is compiled in, on a model of each kind.
class MlxPropertyTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Model> ModelOn(const char* backend) {
    return LoadTestModel(GetParam(), *FindBackend(backend));
  }
  void SetUp() override {
    if (!FindBackend("mlx").ok()) GTEST_SKIP() << "built without MLX";
  }
};

// It does not promise the same bits, but the reference's numbers.
TEST_P(MlxPropertyTest, SaysWhatTheReferenceSays) {
  RoundingOracle oracle(ModelOn("reference"));
  RunPrograms(ModelOn("mlx"), &oracle, GetParam(), kMlxPrograms);
  EXPECT_GT(oracle.n_compared(), 0);
  std::printf("%lld tokens compared; log-probabilities differ by at most %.2g\n",
              static_cast<long long>(oracle.n_compared()), oracle.largest_difference());
}

// Row by row, it also promises the bits.
TEST_P(MlxPropertyTest, StrictlyKeepsEveryBit) {
  const auto model = ModelOn("mlx-strict");
  Oracle oracle(model);
  RunPrograms(model, &oracle, GetParam(), kMlxPrograms);
}

INSTANTIATE_TEST_SUITE_P(Models, MlxPropertyTest,
                         ::testing::Values("llama", "gemma3", "lfm2", "qwen35", "mamba2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::testing
