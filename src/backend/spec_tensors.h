// Every tensor that a spec names, for what a backend does with all of them: check
// their types before loading, count their bytes, read them in advance.
#ifndef WEFT_BACKEND_SPEC_TENSORS_H_
#define WEFT_BACKEND_SPEC_TENSORS_H_

#include <vector>

#include "base/status.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Each tensor once, in the order of the file.
std::vector<TensorRef> TensorsOf(const ModelSpec& spec);

// An error that names the first tensor whose type cannot be decoded.
Status CheckWeightTypes(const ModelFile& file, const ModelSpec& spec);

}  // namespace weft

#endif  // WEFT_BACKEND_SPEC_TENSORS_H_
