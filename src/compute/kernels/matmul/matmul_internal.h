// The kernel tables of the instruction sets, for matmul.cc alone.
#ifndef WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_INTERNAL_H_
#define WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_INTERNAL_H_

#include "compute/kernels/matmul/matmul.h"

namespace weft::matmul_internal {

extern const MatmulKernels kScalarKernels;
extern const MatmulKernels kAvx2Kernels;     // x86-64 builds only
extern const MatmulKernels kAvxVnniKernels;  // x86-64 builds only
extern const MatmulKernels kAvx512Kernels;   // x86-64 builds only
extern const MatmulKernels kNeonKernels;     // AArch64 builds only
extern const MatmulKernels kI8mmKernels;     // AArch64 builds only

}  // namespace weft::matmul_internal

#endif  // WEFT_COMPUTE_KERNELS_MATMUL_MATMUL_INTERNAL_H_
