// A kernel as the host sees it: what it is called on a device, and what the emulator runs.
//
// Kernels take one struct by value and are written once, in the dialect (dialect.h). The host
// launches a KernelOf<Args>; which of its two sides runs is the device's matter.
#ifndef WEFT_DEVICE_KERNEL_H_
#define WEFT_DEVICE_KERNEL_H_

#include <cstddef>
#include <type_traits>

namespace weft::device {

// Limits that every device here has, and the emulator holds kernels to.
inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;             // of a block
inline constexpr int kSharedBytes = 64 << 10;        // of a block, with what a launch gives it
inline constexpr int kStaticSharedBytes = 48 << 10;  // of a block, without
inline constexpr int kMaxGridYz = 65535;

struct Kernel {
  const char* name = nullptr;                // of the compiled kernel in a device module
  void (*body)(const void* args) = nullptr;  // one thread of it, for the emulator
  size_t args_bytes = 0;
  // Its threads wait for one another: barriers, exchanges between lanes.
  bool cooperates = false;
  int most_threads = kMaxThreads;  // of a block, that it is compiled for
  int dynamic_bytes = 0;           // of shared memory that a launch gives it, beside its own
};

template <typename Args>
struct KernelOf : Kernel {
  static_assert(std::is_trivially_copyable_v<Args>);
};

// How many blocks, and threads in each. A kernel that cooperates has whole warps.
struct LaunchShape {
  int grid_x = 1, grid_y = 1, grid_z = 1;
  int threads = 1;
};

}  // namespace weft::device

#endif  // WEFT_DEVICE_KERNEL_H_
