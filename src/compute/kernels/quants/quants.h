// The block formats of model files: the float values of each stored block, and how floats are
// stored in blocks.
//
// Decoding here is the definition (portable, exact): every faster kernel must match it bit for bit.
// Pure functions over caller memory; any thread.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_H_

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace weft {

// True for the types whose values can be decoded: usable as weights.
bool CanDequantize(DType type);
// True for the types that Quantize can produce.
bool CanQuantize(DType type);

// Decodes `n` values of a row. REQUIRES: CanDequantize(type), n a multiple of
// the type's block; `row` holds RowBytes(type, n) bytes, at any alignment.
void Dequantize(DType type, const std::byte* row, int64_t n, float* out);

// Encodes `n` values of a row. REQUIRES: CanQuantize(type), n a multiple of the
// block. Deterministic. Values that are not finite are treated as zero.
// `importance`, null or n weights, favours values that matter more.
void Quantize(DType type, const float* values, int64_t n, const float* importance, std::byte* row);

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_H_
