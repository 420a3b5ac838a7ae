// The kernels for ARM processors with dot products (ARMv8.2's FEAT_DotProd).
#include <arm_neon.h>

#include <cstring>

#include "compute/kernels/matmul/matmul_drive.h"
#include "compute/kernels/matmul/matmul_format.h"
#include "compute/kernels/matmul/matmul_internal.h"

namespace weft::matmul_internal {
namespace {

#include "compute/kernels/matmul/matmul_neon.inc"

template <Format f, int kRows>
void Int8Tile(const TileWork& work) {
  MultiplyTile<DotProducts, f, kRows>(work);
}

#include "compute/kernels/matmul/matmul_dispatch.inc"

}  // namespace

const MatmulKernels kNeonKernels = {QuantizeRow, Matmul};

}  // namespace weft::matmul_internal
