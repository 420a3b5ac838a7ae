// Converts a model file to another that stores its matrices in fewer bits.
#ifndef WEFT_TOOLS_QUANTIZE_MODEL_H_
#define WEFT_TOOLS_QUANTIZE_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "formats/model_file.h"

namespace weft::tools {

// "F16, BF16, Q8_0, ...": what QuantizeOptions::type may be.
std::string QuantizeTypeNames();

struct QuantizeOptions {
  // A type that can be encoded, or a mix: Q2_K, Q3_K_M, Q4_K_M, Q5_K_M. Any letter case.
  std::string type = "Q4_K_M";
  // Every matrix in that type; otherwise the output matrix keeps 6 bits or more.
  // A mix cannot be pure (but Q2_K, which names a type too).
  bool pure = false;
  int n_threads = 0;  // 0: one per core
  // Called now and then, on the calling thread, with values done and their total.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// OK when type and pure make sense together.
Status CheckQuantizeOptions(const QuantizeOptions& options);

struct QuantizedModel {
  uint64_t values = 0;
  uint64_t source_bytes = 0;  // of the tensors
  uint64_t bytes = 0;
  std::map<std::string_view, int> tensors_of_type;  // by the type's name
};

// The type that each of `file`'s tensors is to have, in their order.
//
// Vectors, norms, routers, convolutions, biases and small matrices become F32, and
// tensors of integers stay as they are. Of the rest, a matrix whose rows are not
// whole blocks gets the nearest type with blocks of 32, or else F16.
StatusOr<std::vector<DType>> PlanTypes(const ModelFile& file, std::string_view type, bool pure);

// Reads the GGUF file `in` (the first file of a split one) and writes `out`, which
// appears when it is complete. All metadata is kept but the keys that describe the
// conversion or the split; numbers of metadata take the 32-bit types where they
// fit. A tensor that already has its type is copied. The same input and options give
// the same bytes, whatever the number of threads.
StatusOr<QuantizedModel> QuantizeModel(const std::string& in, const std::string& out,
                                       const QuantizeOptions& options);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_QUANTIZE_MODEL_H_
