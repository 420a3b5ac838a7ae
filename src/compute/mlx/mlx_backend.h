// The mlx backend: Apple's array library, on a Mac's GPU or on any CPU.
//
// Only this folder uses MLX. It is compiled if CMake finds the library.
#ifndef WEFT_COMPUTE_MLX_MLX_BACKEND_H_
#define WEFT_COMPUTE_MLX_MLX_BACKEND_H_

#include "compute/backend.h"

namespace weft {

const Backend* MlxBackend();
// The same, but computes every row by itself, and so promises the same bits.
const Backend* StrictMlxBackend();

}  // namespace weft

#endif  // WEFT_COMPUTE_MLX_MLX_BACKEND_H_
