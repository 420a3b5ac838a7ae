// The address of a sequence's recurrent state.
#ifndef WEFT_COMPUTE_KERNELS_GPU_SLOT_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_SLOT_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/recurrent.h"

namespace weft::device {

WEFT_DEVICE float* SlotStateOf(const StepView& step, const SlotView& state, int sequence) {
  const PoolView& pool = state.pool;
  const int slot = step.slots[sequence];
  std::byte* const place =
      pool.slabs[slot >> pool.shift] + (slot & ((1 << pool.shift) - 1)) * pool.bytes;
  return reinterpret_cast<float*>(place + state.offset);
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_SLOT_DEVICE_H_
