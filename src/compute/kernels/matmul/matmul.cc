#include "compute/kernels/matmul/matmul.h"

#include "base/check.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft {

const MatmulKernels& MatmulKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return matmul_internal::kScalarKernels;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return matmul_internal::kAvx2Kernels;
    case Isa::kAvxVnni:
      return matmul_internal::kAvxVnniKernels;
    case Isa::kAvx512:
      return matmul_internal::kAvx512Kernels;
#elif defined(__aarch64__)
    case Isa::kNeon:
      return matmul_internal::kNeonKernels;
    case Isa::kI8mm:
      return matmul_internal::kI8mmKernels;
#endif
    default:
      WEFT_CHECK(false, "no kernels for this instruction set");
  }
  return matmul_internal::kScalarKernels;
}

}  // namespace weft
