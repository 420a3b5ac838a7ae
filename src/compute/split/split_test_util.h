// Tiny models on backends, for this folder's tests.
#ifndef WEFT_COMPUTE_SPLIT_SPLIT_TEST_UTIL_H_
#define WEFT_COMPUTE_SPLIT_SPLIT_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/model_runner.h"

namespace weft {

inline constexpr int64_t kGiB = int64_t{1} << 30;

inline const Backend* Cpu() { return *FindBackend("cpu"); }

struct Tiny {
  explicit Tiny(std::string_view architecture) {
    auto opened = ModelFile::Open(testing::TinyModelFile(architecture));
    EXPECT_TRUE(opened.ok()) << opened.status();
    file = *std::move(opened);
    auto built = BuildModelSpec(*file, {.context_tokens = testing::kTinyContext});
    EXPECT_TRUE(built.ok()) << built.status();
    spec = *std::move(built);
  }
  testing::LoadedModel On(const Backend* backend) const {
    auto weights = backend->Load(file, spec, {.n_threads = 1});
    EXPECT_TRUE(weights.ok()) << weights.status();
    return {backend, weights.ok() ? *weights : nullptr};
  }
  std::shared_ptr<const ModelFile> file;
  ModelSpec spec;
};

inline std::unique_ptr<testing::ModelRunner> NewRunner(const testing::LoadedModel& model,
                                                       testing::RunnerOptions options = {}) {
  auto runner = testing::ModelRunner::New(model, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? *std::move(runner) : nullptr;
}

// Logits of a step of `tokens`, and those of other tokens computed one by one in its pauses.
struct PausedRun {
  std::vector<float> logits, beside;
  int n_pauses = 0;
};
inline PausedRun RunWithOthersInPauses(const testing::LoadedModel& model,
                                       std::span<const int32_t> tokens,
                                       std::span<const int32_t> others) {
  using Part = testing::ModelRunner::Part;
  PausedRun run;
  const auto runner = NewRunner(model);
  const int other = runner->Add();
  const std::vector<Part> parts = {{runner->Add(), tokens}};
  const auto logits = runner->Step(parts, [&] {
    if (run.n_pauses++ >= std::ssize(others)) return;
    const std::vector<Part> small = {
        {other, others.subspan(static_cast<size_t>(run.n_pauses - 1), 1)}};
    const auto step = runner->Step(small);
    ASSERT_TRUE(step.ok()) << step.status();
    run.beside.insert(run.beside.end(), step->begin(), step->end());
  });
  EXPECT_TRUE(logits.ok()) << logits.status();
  if (logits.ok()) run.logits = *logits;
  return run;
}

}  // namespace weft

#endif  // WEFT_COMPUTE_SPLIT_SPLIT_TEST_UTIL_H_
