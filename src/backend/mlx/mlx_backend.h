// The mlx backend: Apple's array library, on the GPU of a Mac and on any processor.
//
// Only this folder knows MLX. It is compiled where CMake finds the library.
#ifndef WEFT_BACKEND_MLX_MLX_BACKEND_H_
#define WEFT_BACKEND_MLX_MLX_BACKEND_H_

#include "backend/backend.h"

namespace weft {

const Backend* MlxBackend();
// The same, but it computes every row by itself and so promises the same bits.
const Backend* StrictMlxBackend();

}  // namespace weft

#endif  // WEFT_BACKEND_MLX_MLX_BACKEND_H_
