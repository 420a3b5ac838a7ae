// The models of the property tests: small golden ones, or generated ones of the same kinds if there
// are none.
#ifndef WEFT_TESTS_PROPERTY_TEST_MODELS_H_
#define WEFT_TESTS_PROPERTY_TEST_MODELS_H_

#include <memory>
#include <string>
#include <string_view>

#include "weft/model.h"

namespace weft::testing {

// A temporary folder, removed with its contents. In memory if the system has such a file system,
// because a property test writes thousands of files.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "llama", "qwen3", "gemma3", "qwen3moe", "lfm2", "qwen35", "mamba2": the golden model of that
// name, or a generated one of the same kind if there is no reference data. "tiny-llama" and the
// other shapes of tools/model_shapes.h: generated. The prefix "recurrent-" adds recurrent state to
// pages (RecurrentBackend). Each file is written once per process. `backend`: null means the cpu
// backend. The prefix "lora-" loads random adapters with the model: "one", "two", and "three",
// which waits for its invocation. Aborts the test program on failure.
std::shared_ptr<const Model> LoadTestModel(std::string_view name, const Backend* backend = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_TEST_MODELS_H_
