// The tensors of a spec, as all backends read them: the list of all, to check types and count
// bytes, and their values as floats.
#ifndef WEFT_COMPUTE_SPEC_TENSORS_H_
#define WEFT_COMPUTE_SPEC_TENSORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/adapter_spec.h"
#include "model/formats/model_file.h"
#include "model/model_spec.h"

namespace weft {

// Each tensor once, in the file's order.
std::vector<TensorRef> TensorsOf(const ModelSpec& spec);

// An error naming the first tensor whose type cannot be decoded.
Status CheckWeightTypes(const ModelFile& file, const ModelSpec& spec);

// The same for an adapter's tensors.
Status CheckAdapterTypes(const Adapter& adapter);

// Values of a row or of a whole tensor; numbers of an I32 tensor become floats. REQUIRES:
// CheckWeightTypes accepts the type.
void DecodeRow(const TensorInfo& tensor, int64_t row, float* out);
void Decode(const TensorInfo& tensor, float* out);
std::vector<float> ValuesOf(const TensorInfo& tensor);
// Empty if the reference is empty.
std::vector<float> ValuesOf(const ModelFile& file, TensorRef ref);

// Rows of a table by number, concatenated. Rows of the embedding table can serve as
// StepSequence::rows. Reads the file. REQUIRES: the table has these rows.
StatusOr<std::vector<float>> ReadTableRows(const ModelFile& file, TensorRef table,
                                           std::span<const TokenId> numbers);

// A convolution's kernel as (n_taps, n_channels), from the file's (n_channels, n_taps).
void PutTapsFirst(const Convolution& convolution, const float* kernel, float* out);

}  // namespace weft

#endif  // WEFT_COMPUTE_SPEC_TENSORS_H_
