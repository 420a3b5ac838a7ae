// Compares cuda_driver.h with NVIDIA's header: compiles only if both agree.
// tools/cuda_kernels.py compiles it; nothing links it.
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include "compute/device/cuda_driver.h"

namespace weft::device::cuda {

// We declare enumerations as integers and handles as pointers, which are passed in the same way.
template <typename Ours, typename Theirs>
constexpr bool PassedAlike = sizeof(Ours) == sizeof(Theirs) &&
                             std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                             !std::is_floating_point_v<Ours>;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct SameCall<R1 (*)(A1...), R2(A2...)> {
  static constexpr bool SameArguments() {
    if constexpr (sizeof...(A1) != sizeof...(A2)) return false;
    else return (PassedAlike<A1, A2> && ...);
  }
  static constexpr bool value = PassedAlike<R1, R2> && SameArguments();
};

#define WEFT_CHECK_(member, symbol, arguments) \
  static_assert(SameCall<decltype(Driver::member), decltype(::symbol)>::value, #symbol);
WEFT_CUDA_FUNCTIONS(WEFT_CHECK_)

static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE && kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kNoBinaryForDevice == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(kStubLibrary == CUDA_ERROR_STUB_LIBRARY && kInvalidImage == CUDA_ERROR_INVALID_IMAGE);
static_assert(kUnsupportedPtx == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(kDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
static_assert(kNotReady == CUDA_ERROR_NOT_READY && kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kComputeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kClock == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(kDrawsDesktop == CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT);
static_assert(kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kMemoryClock == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(kMemoryBus == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(kMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);

using Node = CUDA_KERNEL_NODE_PARAMS;
static_assert(sizeof(KernelNode) == sizeof(Node));
static_assert(offsetof(KernelNode, grid_x) == offsetof(Node, gridDimX));
static_assert(offsetof(KernelNode, block_x) == offsetof(Node, blockDimX));
static_assert(offsetof(KernelNode, shared_bytes) == offsetof(Node, sharedMemBytes));
static_assert(offsetof(KernelNode, arguments) == offsetof(Node, kernelParams));
static_assert(offsetof(KernelNode, kernel) == offsetof(Node, kern));
static_assert(offsetof(KernelNode, context) == offsetof(Node, ctx));

}  // namespace weft::device::cuda
