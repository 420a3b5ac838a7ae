// A kernel from the host's point of view: its name on a device, and its body for the emulator.
//
// A kernel takes one struct by value and is written once, in the dialect (dialect.h). The host
// launches a KernelOf<Args>; the device decides which of the two runs.
#ifndef WEFT_COMPUTE_DEVICE_KERNEL_H_
#define WEFT_COMPUTE_DEVICE_KERNEL_H_

#include <cstddef>
#include <type_traits>

namespace weft::device {

// Limits of all supported devices, which the emulator enforces.
inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;             // per block
inline constexpr int kSharedBytes = 64 << 10;        // per block, with dynamic shared memory
inline constexpr int kStaticSharedBytes = 48 << 10;  // per block, without dynamic shared memory
inline constexpr int kMaxGridYz = 65535;

struct Kernel {
  const char* name = nullptr;                // of the compiled kernel in a device module
  void (*body)(const void* args) = nullptr;  // runs one thread of it, for the emulator
  size_t args_bytes = 0;
  // Its threads wait for each other: barriers, exchanges between lanes.
  bool cooperates = false;
  int max_threads = kMaxThreads;  // max threads per block that it is compiled for
  int dynamic_bytes = 0;          // dynamic shared memory per launch, in addition to its own
};

template <typename Args>
struct KernelOf : Kernel {
  static_assert(std::is_trivially_copyable_v<Args>);
};

// Numbers of blocks, and of threads per block. Cooperative kernels need whole warps.
struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 1;
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_KERNEL_H_
