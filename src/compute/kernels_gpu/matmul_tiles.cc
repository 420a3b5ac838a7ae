// Products of quantized weights with tensor-core tiles.
#include "compute/device/dialect.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/matmul_tiles_device.h"

namespace weft::device {

#define WEFT_DEFINE_TILES_(name, ...)                                  \
  WEFT_STAGING_KERNEL(MultiplyFew##name, MatmulArgs, kMatmulThreads,   \
                      (TileRoom<kMatmulRows, 1>::kBytes)) {            \
    MultiplyTiles<__VA_ARGS__, kMatmulRows, 1>(a);                     \
  }                                                                    \
  WEFT_STAGING_KERNEL(MultiplyTiles##name, MatmulArgs, kMatmulThreads, \
                      (TileRoom<kTileRows, 1>::kBytes)) {              \
    MultiplyTiles<__VA_ARGS__, kTileRows, 1>(a);                       \
  }                                                                    \
  WEFT_STAGING_KERNEL(MultiplyMany##name, MatmulArgs, kMatmulThreads,  \
                      (TileRoom<kTileRows, kTileBands>::kBytes)) {     \
    MultiplyTiles<__VA_ARGS__, kTileRows, kTileBands>(a);              \
  }
WEFT_QUANT_FORMS(WEFT_DEFINE_TILES_)

}  // namespace weft::device
