// Every kernel of src/compute/kernels_gpu, for the fake driver (fake_cuda.h).
#ifndef WEFT_TESTS_SUPPORT_ALL_KERNELS_H_
#define WEFT_TESTS_SUPPORT_ALL_KERNELS_H_

#include <vector>

#include "compute/device/kernel.h"

namespace weft::testing {

std::vector<const device::Kernel*> AllKernels();

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_ALL_KERNELS_H_
