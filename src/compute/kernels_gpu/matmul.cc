// Products and table lookups for every weight form, and quantization of activations.
#include "compute/device/dialect.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/matmul_device.h"
#include "compute/kernels_gpu/matmul_one_device.h"
#include "compute/kernels_gpu/quantize_device.h"

namespace weft::device {

WEFT_COOPERATIVE_KERNEL(QuantizeRows, QuantizeArgs, kQuantizeThreads) {
  const int row = BlockY(), head = BlockZ();
  const int block = BlockX() * kQuantizeBlocks + ThreadIndex() / kQuantizeLanes;
  if (row >= *a.n_rows) return;
  const bool there = block < a.n_blocks;
  float values[kQuantizeEach] = {};
  if (there) {
    LoadFour(a.x.values + row * a.x.stride + head * a.x_head +
                 static_cast<int64_t>(block) * kBlockInputs +
                 ThreadIndex() % kQuantizeLanes * kQuantizeEach,
             values);
  }
  QuantizeBlock(values, a.out, static_cast<int64_t>(head) * a.head_rows + row, block, a.n_blocks,
                there);
}

#define WEFT_DEFINE_QUANT_(name, ...)                                      \
  using Form##name = __VA_ARGS__;                                          \
  WEFT_COOPERATIVE_KERNEL(MultiplyOne##name, MatmulArgs, kMatmulThreads) { \
    MultiplyOne<Form##name>(a);                                            \
  }                                                                        \
  WEFT_COOPERATIVE_KERNEL(Multiply##name, MatmulArgs, kMatmulThreads) {    \
    Multiply<QuantProduct<Form##name>, kMatmulRows>(a);                    \
  }                                                                        \
  WEFT_KERNEL(Embed##name, EmbedArgs) { EmbedQuantized<Form##name>(a); }
WEFT_QUANT_FORMS(WEFT_DEFINE_QUANT_)

#define WEFT_DEFINE_FLOAT_(name)                                           \
  WEFT_COOPERATIVE_KERNEL(MultiplyOne##name, MatmulArgs, kMatmulThreads) { \
    Multiply<FloatProduct<name>, 1>(a);                                    \
  }                                                                        \
  WEFT_COOPERATIVE_KERNEL(Multiply##name, MatmulArgs, kMatmulThreads) {    \
    Multiply<FloatProduct<name>, kMatmulRows>(a);                          \
  }                                                                        \
  WEFT_KERNEL(Embed##name, EmbedArgs) { EmbedFloats<name>(a); }
WEFT_FLOAT_FORMS(WEFT_DEFINE_FLOAT_)

}  // namespace weft::device
