// No kernel of a step reads memory that another block of its launch writes or that nobody has
// written, and none accesses memory outside its allocations.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute/device/emulated_device.h"
#include "compute/gpu/gpu_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/memory_checker.h"
#include "tests/support/model_runner.h"
#include "tests/support/race_finder.h"

namespace weft::gpu {
namespace {

using device::EmulatedDevice;
using weft::testing::LoadedModel;
using weft::testing::MemoryChecker;
using weft::testing::ModelRunner;
using weft::testing::RaceFinder;
using weft::testing::RandomTokens;
using weft::testing::RunnerOptions;

class MemoryFaultsTest : public ::testing::TestWithParam<std::string> {
 protected:
  StatusOr<std::unique_ptr<ModelRunner>> NewRunner(bool tiles, DType kv_type) {
    WEFT_ASSIGN_OR_RETURN(auto file, ModelFile::Open(weft::testing::TinyModelFile(GetParam())));
    WEFT_ASSIGN_OR_RETURN(ModelSpec spec, BuildModelSpec(*file, {.context_tokens = 512}));
    LoadedModel model{.backend = EmulatedBackend()};
    WEFT_ASSIGN_OR_RETURN(
        model.weights,
        LoadTo(std::make_shared<EmulatedDevice>(device::emulator::Order::kAscending, tiles), 0,
               std::move(file), std::move(spec), {.n_threads = 1}));
    RunnerOptions options;
    options.state.kv_type = kv_type;
    options.executor.max_step_tokens = 64;
    return ModelRunner::New(model, options);
  }

  // A prompt, sessions that share it, and their steps of one row and of several, with best tokens.
  static Status RunSteps(ModelRunner* runner) {
    const auto text = RandomTokens(150, 1);
    const std::vector<int64_t> chunks = {64};
    const int root = runner->Add();
    WEFT_RETURN_IF_ERROR(runner->Feed(root, text, chunks).status());
    std::vector<ModelRunner::Part> parts;
    for (int i = 0; i < 10; ++i) {
      WEFT_ASSIGN_OR_RETURN(const int fork, runner->Fork(root, true));
      parts.push_back({.sequence = fork, .tokens = std::span(text).first(1), .n_best = 4});
    }
    WEFT_RETURN_IF_ERROR(runner->StepFor(std::span(parts).first(1)).status());
    return runner->StepFor(parts).status();
  }
};

TEST_P(MemoryFaultsTest, NoRaceInAStep) {
  for (const auto& [tiles, kv_type] : {std::pair(false, DType::kF16), {true, DType::kQ8_0}}) {
    const auto runner = NewRunner(tiles, kv_type);
    ASSERT_TRUE(runner.ok()) << runner.status();
    RaceFinder finder;
    const Status status = RunSteps(runner->get());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_GT(finder.n_launches(), 50);
    EXPECT_THAT(finder.races(), ::testing::IsEmpty());
  }
}

TEST_P(MemoryFaultsTest, NothingIsReadThatNobodyWroteOrAllocated) {
  for (const auto& [tiles, kv_type] : {std::pair(false, DType::kF16), {true, DType::kQ8_0}}) {
    MemoryChecker checker;  // before the first allocation
    const auto runner = NewRunner(tiles, kv_type);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const Status status = RunSteps(runner->get());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_GT(checker.n_accesses(), 100000);
    EXPECT_THAT(checker.faults(), ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryFaultsTest,
                         ::testing::Values("llama", "gemma3", "glm4moe", "qwen35"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace weft::gpu
