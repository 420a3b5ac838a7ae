// Runs one kernel in the emulator, for tests of kernels.
#ifndef WEFT_COMPUTE_GPU_KERNEL_TEST_UTIL_H_
#define WEFT_COMPUTE_GPU_KERNEL_TEST_UTIL_H_

#include "compute/device/emulator.h"
#include "gtest/gtest.h"

namespace weft::gpu {

// The order of blocks and threads must not matter.
template <typename Args>
void RunKernel(const device::KernelOf<Args>& kernel, const device::LaunchShape& shape,
               const Args& args,
               device::emulator::Order order = device::emulator::Order::kDescending) {
  const Status status = device::emulator::Run(kernel, shape, &args, order);
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_KERNEL_TEST_UTIL_H_
