// Model files of real shapes with random weights, for tests and for measuring speed and memory.
// Their output is meaningless but costs as much as the real model's.
#ifndef WEFT_TOOLS_MAKE_MODEL_H_
#define WEFT_TOOLS_MAKE_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/model_shapes.h"

namespace weft::tools {

struct MakeModelOptions {
  // A DType's name, or "Q4_K_M" or "Q5_K_M": K blocks of 4 or 5 bits, with 6 bits
  // for the output and for half of the value and down projections. A matrix whose
  // rows are not whole blocks of 256 gets the nearest type with blocks of 32.
  std::string type = "Q4_0";
  uint64_t seed = 1;
  // Called now and then with the bytes of weights written and their total.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

struct MadeModel {
  int64_t parameters;
  uint64_t weight_bytes;
};

// Writes the file; the same arguments give the same bytes.
StatusOr<MadeModel> MakeModel(const ModelShape& shape, const MakeModelOptions& options,
                              const std::string& path);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_MAKE_MODEL_H_
