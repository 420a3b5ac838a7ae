// The tensors that a spec names, as every backend reads them: all of them, to check their types
// and count their bytes, and each as floats.
#ifndef WEFT_BACKEND_SPEC_TENSORS_H_
#define WEFT_BACKEND_SPEC_TENSORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Each tensor once, in the order of the file.
std::vector<TensorRef> TensorsOf(const ModelSpec& spec);

// An error that names the first tensor whose type cannot be decoded.
Status CheckWeightTypes(const ModelFile& file, const ModelSpec& spec);

// All values of a tensor: values() of them. REQUIRES: CanDequantize(type).
void Decode(const TensorInfo& tensor, float* out);
std::vector<float> ValuesOf(const TensorInfo& tensor);
// Empty when the reference is.
std::vector<float> ValuesOf(const ModelFile& file, TensorRef ref);

// The rows of a table that have these numbers, one after the other: of the embedding, what stands
// for tokens in StepSequence::rows. Reads the file. REQUIRES: the table has them.
StatusOr<std::vector<float>> ReadTableRows(const ModelFile& file, TensorRef table,
                                           std::span<const TokenId> numbers);

// The kernel of a convolution as (n_taps, n_channels), from the file's (n_channels, n_taps).
void PutTapsFirst(const Convolution& convolution, const float* kernel, float* out);

}  // namespace weft

#endif  // WEFT_BACKEND_SPEC_TENSORS_H_
