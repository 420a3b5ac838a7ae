// The subset of NVIDIA's driver API that cuda_device.cc calls: a table of functions, filled from
// libcuda.so.1 at run time, so that the same program also starts on machines without the library.
//
// The declarations are our own, so compiling needs no CUDA toolkit. If there is one,
// tools/cuda_kernels.py compares them with NVIDIA's header. Tests fill a table with their own
// functions (tests/support/fake_cuda.h).
//
// Threads: all functions may be called from any thread; those that need a context use the calling
// thread's current one.
#ifndef WEFT_COMPUTE_DEVICE_CUDA_DRIVER_H_
#define WEFT_COMPUTE_DEVICE_CUDA_DRIVER_H_

#include <cstddef>
#include <string>

namespace weft::device::cuda {

using Result = int;  // 0: success
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kStubLibrary = 34,
                        kNoDevice = 100, kInvalidImage = 200, kNoBinaryForDevice = 209,
                        kUnsupportedPtx = 222, kNotFound = 500, kNotReady = 600,
                        kIllegalAddress = 700, kLaunchFailed = 719, kDriverMismatch = 803;

using DeviceNumber = int;
using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int): the driver's own type
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExec = struct GraphExecTag*;

// Device attributes; clocks in kHz, the bus in bits. kDrawsDesktop: kernels have a time limit,
// which means that a display is attached to the device.
inline constexpr int kClock = 13, kMultiprocessors = 16, kDrawsDesktop = 17, kMemoryClock = 36,
                     kMemoryBus = 37, kComputeMajor = 75, kComputeMinor = 76;
// Attribute of a kernel: max bytes of dynamic shared memory per launch.
inline constexpr int kMaxDynamicSharedBytes = 8;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;

struct KernelNode {
  Function function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  Context context;
};

// X(our name, name in the library, arguments).
#define WEFT_CUDA_FUNCTIONS(X)                                                            \
  X(get_error_name, cuGetErrorName, (Result, const char**))                               \
  X(get_error_string, cuGetErrorString, (Result, const char**))                           \
  X(driver_get_version, cuDriverGetVersion, (int*))                                       \
  X(init, cuInit, (unsigned flags))                                                       \
  X(device_get_count, cuDeviceGetCount, (int*))                                           \
  X(device_get, cuDeviceGet, (DeviceNumber*, int))                                        \
  X(device_get_name, cuDeviceGetName, (char*, int, DeviceNumber))                         \
  X(device_get_attribute, cuDeviceGetAttribute, (int*, int, DeviceNumber))                \
  X(primary_context_retain, cuDevicePrimaryCtxRetain, (Context*, DeviceNumber))           \
  X(primary_context_release, cuDevicePrimaryCtxRelease_v2, (DeviceNumber))                \
  X(context_push, cuCtxPushCurrent_v2, (Context))                                         \
  X(context_pop, cuCtxPopCurrent_v2, (Context*))                                          \
  X(context_priorities, cuCtxGetStreamPriorityRange, (int* least, int* greatest))         \
  X(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                        \
  X(memory_allocate, cuMemAlloc_v2, (DevicePointer*, size_t))                             \
  X(memory_free, cuMemFree_v2, (DevicePointer))                                           \
  X(host_allocate, cuMemHostAlloc, (void**, size_t, unsigned flags))                      \
  X(host_free, cuMemFreeHost, (void*))                                                    \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, size_t, Stream))   \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, DevicePointer, size_t, Stream))           \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, (DevicePointer, DevicePointer, size_t, Stream)) \
  X(fill, cuMemsetD8Async, (DevicePointer, unsigned char, size_t, Stream))                \
  X(stream_create, cuStreamCreateWithPriority, (Stream*, unsigned flags, int priority))   \
  X(stream_destroy, cuStreamDestroy_v2, (Stream))                                         \
  X(stream_query, cuStreamQuery, (Stream))                                                \
  X(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned flags))                \
  X(event_create, cuEventCreate, (Event*, unsigned flags))                                \
  X(event_destroy, cuEventDestroy_v2, (Event))                                            \
  X(event_record, cuEventRecord, (Event, Stream))                                         \
  X(event_query, cuEventQuery, (Event))                                                   \
  X(module_load, cuModuleLoadData, (Module*, const void* image))                          \
  X(module_unload, cuModuleUnload, (Module))                                              \
  X(module_get_function, cuModuleGetFunction, (Function*, Module, const char* name))      \
  X(function_set_attribute, cuFuncSetAttribute, (Function, int attribute, int value))     \
  X(launch_kernel, cuLaunchKernel,                                                        \
    (Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,       \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** arguments, \
     void** extra))                                                                       \
  X(graph_create, cuGraphCreate, (Graph*, unsigned flags))                                \
  X(graph_destroy, cuGraphDestroy, (Graph))                                               \
  X(graph_add_kernel, cuGraphAddKernelNode_v2,                                            \
    (GraphNode*, Graph, const GraphNode* after, size_t n_after, const KernelNode*))       \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                       \
    (GraphExec*, Graph, unsigned long long flags)) /* NOLINT(google-runtime-int) */       \
  X(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                     \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec))

struct Driver {
#define WEFT_CUDA_MEMBER_(member, symbol, arguments) Result(*member) arguments = nullptr;
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_MEMBER_)
#undef WEFT_CUDA_MEMBER_
};

// Either the driver's functions, or the problem that prevented loading them.
struct LoadedDriver {
  Driver functions;
  std::string problem;  // empty: functions are loaded and initialised
};

// Opens the library by name and initialises it. It stays open until the program ends.
LoadedDriver LoadDriver(const char* library = "libcuda.so.1");

// The driver's text, such as "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
std::string TextOf(const Driver& driver, Result result);

// The newest CUDA version that the driver supports, such as "CUDA 12.4".
std::string VersionOf(const Driver& driver);
// Driver releases that can load our compiled kernels.
inline constexpr char kReleases[] = "release 525 or later; kernels made by CUDA 13 need 580";

}  // namespace weft::device::cuda

#endif  // WEFT_COMPUTE_DEVICE_CUDA_DRIVER_H_
