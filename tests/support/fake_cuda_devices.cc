// Cards, contexts, memory and kernels of the fake driver.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "tests/support/fake_cuda_internal.h"

namespace weft::testing::fake_cuda {

namespace {

bool IsCard(int number) { return number >= 0 && number < static_cast<int>(fake->cards.size()); }
const FakeCuda::Card& CardAt(int number) { return fake->cards[static_cast<size_t>(number)]; }

int64_t HeldOn(int card) {
  int64_t bytes = 0;
  for (const auto& [address, memory] : fake->memory) {
    if (memory.card == card) bytes += static_cast<int64_t>(memory.bytes);
  }
  return bytes;
}
// Fills only the beginning with garbage, to stay cheap.
void* Take(int card, size_t bytes) {
  void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  WEFT_CHECK(data != nullptr, "the test has memory");
  std::memset(data, 0xFF, std::min<size_t>(bytes, 65536));
  fake->memory[reinterpret_cast<uintptr_t>(data)] = {card, bytes};
  return data;
}
Result Give(int card, uintptr_t address) {
  const auto found = fake->memory.find(address);
  if (found == fake->memory.end() || (card < 0) != (found->second.card < 0)) return kInvalidValue;
  fake->memory.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}

}  // namespace

Result GetErrorName(Result result, const char** name) {
  *name = result == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
          : result == kNoDevice     ? "CUDA_ERROR_NO_DEVICE"
                                    : nullptr;
  return *name != nullptr ? kSuccess : kInvalidValue;
}
Result GetErrorString(Result /*result*/, const char** text) {
  *text = "so it was planted";
  return kSuccess;
}
Result DriverGetVersion(int* version) {
  return Call("cuDriverGetVersion").Do([&] { *version = 12040; });
}
Result Init(unsigned /*flags*/) { return Call("cuInit").result; }
Result DeviceGetCount(int* n) {
  return Call("cuDeviceGetCount").Do([&] { *n = static_cast<int>(fake->cards.size()); });
}
Result DeviceGet(DeviceNumber* device, int number) {
  Call call("cuDeviceGet");
  return call.Require(IsCard(number), kInvalidDevice).Do([&] { *device = number; });
}
Result DeviceGetName(char* name, int size, DeviceNumber device) {
  Call call("cuDeviceGetName");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    std::strncpy(name, CardAt(device).name.c_str(), static_cast<size_t>(size));
  });
}
Result DeviceGetAttribute(int* value, int attribute, DeviceNumber device) {
  Call call("cuDeviceGetAttribute");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    *value = attribute == kComputeMajor   ? CardAt(device).compute_major
             : attribute == kComputeMinor ? CardAt(device).compute_minor
             : attribute == kDrawsDesktop ? (CardAt(device).draws_desktop ? 1 : 0)
             : attribute == kClock        ? 1'000'000
             : attribute == kMemoryClock  ? 2'000'000
             : attribute == kMemoryBus    ? 512
                                          : 10;
  });
}

Result PrimaryContextRetain(Context* context, DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRetain");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    ++fake->retained[static_cast<size_t>(device)];
    *context = ContextOf(device);
  });
}
Result PrimaryContextRelease(DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRelease_v2");
  return call.Require(fake->retained[static_cast<size_t>(device)] > 0, kInvalidContext).Do([&] {
    if (--fake->retained[static_cast<size_t>(device)] == 0) {
      fake->lost[static_cast<size_t>(device)] = kSuccess;
    }
  });
}
Result ContextPush(Context context) {
  Call call("cuCtxPushCurrent_v2");
  const int card = CardOf(context);
  return call
      .Require(IsCard(card) && fake->retained[static_cast<size_t>(card)] > 0, kInvalidContext)
      .Do([&] { contexts.push_back(card); });
}
Result ContextPop(Context* context) {
  Call call("cuCtxPopCurrent_v2");
  return call.Require(!contexts.empty(), kInvalidContext).Do([&] {
    *context = ContextOf(contexts.back());
    contexts.pop_back();
  });
}

Result ContextPriorities(int* least, int* greatest) {
  return Call("cuCtxGetStreamPriorityRange").InContext().Do([&] {
    *least = kMinPriority;
    *greatest = kGreatestPriority;
  });
}

Result MemoryInfo(size_t* free, size_t* total) {
  Call call("cuMemGetInfo_v2");
  return call.InContext().Do([&] {
    *total = static_cast<size_t>(CardAt(call.card()).memory_bytes);
    *free = *total - static_cast<size_t>(HeldOn(call.card()));
  });
}
Result MemoryAllocate(DevicePointer* address, size_t bytes) {
  Call call("cuMemAlloc_v2");
  call.InContext().Require(bytes > 0);
  if (call.result == kSuccess &&
      HeldOn(call.card()) + static_cast<int64_t>(bytes) > CardAt(call.card()).memory_bytes) {
    return kOutOfMemory;
  }
  return call.Do([&] { *address = reinterpret_cast<uintptr_t>(Take(call.card(), bytes)); });
}
Result MemoryFree(DevicePointer address) {
  Call call("cuMemFree_v2");
  call.InContext();
  // Memory of a lost context can be freed, too.
  if (call.result != kSuccess && call.result != kLaunchFailed) return call.result;
  return Give(0, static_cast<uintptr_t>(address));
}
Result HostAllocate(void** data, size_t bytes, unsigned /*flags*/) {
  return Call("cuMemHostAlloc").InContext().Do([&] { *data = Take(-1, bytes); });
}
Result HostFree(void* data) {
  Call call("cuMemFreeHost");
  return Give(-1, reinterpret_cast<uintptr_t>(data));
}

Result ModuleLoad(Module* handle, const void* image) {
  Call call("cuModuleLoadData");
  return call.InContext().Require(image == fake->image.data()).Do([&] {
    auto* const module = new FakeModule{call.card()};
    fake->modules.insert(module);
    *handle = reinterpret_cast<Module>(module);
  });
}
Result ModuleUnload(Module handle) {
  Call call("cuModuleUnload");
  auto* const module = reinterpret_cast<FakeModule*>(handle);
  return call.Require(fake->modules.erase(module) > 0, kInvalidHandle).Do([&] { delete module; });
}
Result ModuleGetFunction(Function* function, Module /*module*/, const char* name) {
  Call call("cuModuleGetFunction");
  call.InContext();
  if (call.result != kSuccess) return call.result;
  for (const Kernel* const kernel : fake->kernels) {
    if (std::string_view(kernel->name) != name) continue;
    *function = reinterpret_cast<Function>(const_cast<Kernel*>(kernel));
    return kSuccess;
  }
  return kNotFound;
}

Result FunctionSetAttribute(Function function, int attribute, int value) {
  return Call("cuFuncSetAttribute")
      .InContext()
      .Require(attribute == kMaxDynamicSharedBytes && value >= 0 && value <= device::kSharedBytes)
      .Do([&] { fake->dynamic_bytes[reinterpret_cast<const Kernel*>(function)] = value; });
}

}  // namespace weft::testing::fake_cuda
