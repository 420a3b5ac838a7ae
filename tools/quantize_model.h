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
#include "model/formats/model_file.h"

namespace weft::tools {

struct QuantizeOptions {
  std::string type = "Q4_K_M";  // see FindRecipe
  bool pure = false;            // every matrix in that type
  // An importance matrix (ImportanceMatrix::Read) of the same model; empty: none, and all inputs
  // matter alike.
  std::string importance = {};
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
  int known_tensors = 0;                            // to the importance matrix
};

// Reads the GGUF file `in` (the first file of a split one) and writes `out`, which
// appears when it is complete. All metadata is kept but the keys that describe the
// conversion or the split; numbers of metadata take the 32-bit types where they
// fit. A tensor that already has its type is copied. The same input and options give
// the same bytes, whatever the number of threads.
StatusOr<QuantizedModel> QuantizeModel(const std::string& in, const std::string& out,
                                       const QuantizeOptions& options);

}  // namespace weft::tools

#endif  // WEFT_TOOLS_QUANTIZE_MODEL_H_
