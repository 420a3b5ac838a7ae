// The models that property tests run on: small golden ones, or made ones of the same
// kinds where there are none.
#ifndef WEFT_TESTS_PROPERTY_TEST_MODELS_H_
#define WEFT_TESTS_PROPERTY_TEST_MODELS_H_

#include <memory>
#include <string>
#include <string_view>

#include "weft/model.h"

namespace weft::testing {

// A folder of its own, removed with everything in it. In memory where the system has
// such a place, because a property test writes thousands of files.
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

// "llama", "qwen3", "gemma3", "qwen3moe", "lfm2", "qwen35", "mamba2": the golden model of
// that name, or the made one of the same kind where there is no reference data.
// "tiny-llama" and the other shapes of tools/model_shapes.h: made. "recurrent-" before any
// of these: with recurrent state beside its pages (RecurrentBackend). Each file is written
// once in a process.
// `backend`: in place of the cpu's; null: the cpu's. Aborts the test program on failure.
std::shared_ptr<const Model> LoadTestModel(std::string_view name, const Backend* backend = nullptr);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTY_TEST_MODELS_H_
