// How a step's kernels access a card's memory: the lanes of a warp should read and write
// neighbouring addresses, which neither the bits nor the emulator's time show. WEFT_SHOW_TRAFFIC=1
// prints the figures of each kernel, and the source lines that exceed the limits.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "compute/device/emulated_device.h"
#include "compute/gpu/gpu_backend.h"
#include "gtest/gtest.h"
#include "tests/support/access_counter.h"
#include "tests/support/engine_harness.h"
#include "tests/support/model_runner.h"
#include "tools/make_model.h"

namespace weft::gpu {
namespace {

using device::EmulatedDevice;
using weft::testing::AccessCounter;
using weft::testing::LoadedModel;
using weft::testing::ModelRunner;
using weft::testing::RandomTokens;
using weft::testing::RunnerOptions;

// Heads, widths and blocks as in real models, but few of each.
tools::ModelShape Shape() {
  return {.name = "traffic",
          .description = "",
          .architecture = "llama",
          .layers = 1,
          .embd = 512,
          .ffn = 1024,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 64,
          .vocab = 600,
          .tied = true,
          .context = 1024,
          .rope_base = 10000,
          .norm_epsilon = 1e-5,
          .vocabulary = tools::VocabularyKind::kBytePairs,
          .pre_tokenizer = "gpt-2"};
}

struct Case {
  std::string weights;
  DType kv_type;
};

class MemoryTrafficTest : public ::testing::TestWithParam<Case> {
 protected:
  StatusOr<std::unique_ptr<ModelRunner>> NewRunner() {
    const std::string path =
        StrCat(::testing::TempDir(), "memory_traffic_test.", getpid(), ".gguf");
    WEFT_RETURN_IF_ERROR(tools::MakeModel(Shape(), {.type = GetParam().weights}, path).status());
    auto file = ModelFile::Open(path);
    std::filesystem::remove(path);
    WEFT_RETURN_IF_ERROR(file.status());
    WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(**file, {.context_tokens = 512}));
    LoadedModel model{.backend = EmulatedBackend()};
    WEFT_ASSIGN_OR_RETURN(
        model.weights,
        LoadTo(std::make_shared<EmulatedDevice>(device::emulator::Order::kAscending, true), 0,
               *std::move(file), std::move(spec), {.n_threads = 1}));
    RunnerOptions options;
    options.state.kv_type = GetParam().kv_type;
    options.executor.max_step_tokens = kPromptRows;
    return ModelRunner::New(model, options);
  }

  // The hot steps: one row, eight rows, and a prompt. Filling the context before them does not
  // count.
  Status RunSteps(AccessCounter* counter) {
    WEFT_ASSIGN_OR_RETURN(const auto runner, NewRunner());
    const auto text = RandomTokens(200, 1);
    const std::vector<int64_t> chunks = {kPromptRows};
    std::vector<ModelRunner::Part> parts;
    for (const size_t n_before : {200, 9, 8, 7, 6, 5, 4, 3}) {
      const int sequence = runner->Add();
      WEFT_RETURN_IF_ERROR(
          runner->Feed(sequence, std::span(text).first(n_before), chunks).status());
      parts.push_back({sequence, std::span(text).first(1)});
    }
    const std::vector<ModelRunner::Part> prompt = {
        {runner->Add(), std::span(text).first(kPromptRows), 1}};
    counter->Start();
    using Step = std::span<const ModelRunner::Part>;
    for (const Step step : {Step(parts).first(1), Step(parts), Step(prompt)}) {
      WEFT_RETURN_IF_ERROR(runner->Step(step).status());
    }
    return OkStatus();
  }

  static constexpr int64_t kPromptRows = 32;
};

// Limits for the kernels whose names begin with `kernels`: sectors read or written, and cycles of
// shared memory, each as a multiple of the minimum.
struct Limit {
  const char* kernels;
  double sectors, shared;
};
constexpr Limit kLimits[] = {
    {"MultiplyOne", 1.3, 1.3}, {"MultiplyFew", 1.3, 1.3}, {"MultiplyTiles", 1.3, 1.3},
    {"Attend", 1.3, 1.3},      {"MergeParts", 1.3, 1.3},  {"FinishHeads", 1.4, 1.5},
    {"Advance", 1.3, 1.3},
};

TEST_P(MemoryTrafficTest, LanesAskForNeighbours) {
  AccessCounter counter;
  const Status status = RunSteps(&counter);
  ASSERT_TRUE(status.ok()) << status;
  if (std::getenv("WEFT_SHOW_TRAFFIC") != nullptr) std::puts(counter.Report().c_str());
  for (const Limit& limit : kLimits) {
    const AccessCounter::Count count = counter.Of(limit.kernels);
    EXPECT_GT(count.requests, 0) << "no step launches " << limit.kernels;
    EXPECT_LE(count.SectorRatio(), limit.sectors) << limit.kernels << '\n' << counter.Report();
    EXPECT_LE(count.SharedRatio(), limit.shared) << limit.kernels << '\n' << counter.Report();
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MemoryTrafficTest,
                         ::testing::Values(Case{"Q4_K_M", DType::kF16}, Case{"Q8_0", DType::kQ8_0}),
                         [](const auto& tested) { return tested.param.weights; });

}  // namespace
}  // namespace weft::gpu
