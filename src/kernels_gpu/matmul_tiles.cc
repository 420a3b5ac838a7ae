// Products of quantized weights on tiles of bytes.
#include "device/dialect.h"
#include "kernels_gpu/kernels.h"
#include "kernels_gpu/matmul_tiles_device.h"

namespace weft::device {

#define WEFT_DEFINE_TILES_(name, ...)                                        \
  WEFT_COOPERATIVE_KERNEL(MultiplyTiles##name, MatmulArgs, kMatmulThreads) { \
    MultiplyTiles<__VA_ARGS__>(a);                                           \
  }
WEFT_QUANT_FORMS(WEFT_DEFINE_TILES_)

}  // namespace weft::device
