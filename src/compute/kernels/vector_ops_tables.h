// The tables of vector kernels, one per instruction set. Internal to vector_ops*.
#ifndef WEFT_COMPUTE_KERNELS_VECTOR_OPS_TABLES_H_
#define WEFT_COMPUTE_KERNELS_VECTOR_OPS_TABLES_H_

#include "compute/kernels/vector_ops.h"

namespace weft {

// From this many queries on, attention converts a block's keys and values to floats first.
inline constexpr int64_t kExpandFrom = 48;

extern const VectorKernels kVectorKernelsScalar;
#if defined(__x86_64__)
extern const VectorKernels kVectorKernelsAvx2;
extern const VectorKernels kVectorKernelsAvxVnni;
extern const VectorKernels kVectorKernelsAvx512;
#elif defined(__aarch64__)
extern const VectorKernels kVectorKernelsNeon;
#endif

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_VECTOR_OPS_TABLES_H_
