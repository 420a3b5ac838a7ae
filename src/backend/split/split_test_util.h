// Tiny models on backends, for the tests of this folder.
#ifndef WEFT_BACKEND_SPLIT_SPLIT_TEST_UTIL_H_
#define WEFT_BACKEND_SPLIT_SPLIT_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "backend/backend.h"
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

}  // namespace weft

#endif  // WEFT_BACKEND_SPLIT_SPLIT_TEST_UTIL_H_
