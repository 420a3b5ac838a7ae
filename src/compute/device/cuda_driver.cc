#include "compute/device/cuda_driver.h"

#include <dlfcn.h>

#include <string_view>

#include "base/strings.h"

namespace weft::device::cuda {

namespace {

template <typename Pointer>
bool Find(void* library, const char* symbol, Pointer* function) {
  *function = reinterpret_cast<Pointer>(dlsym(library, symbol));
  return *function != nullptr;
}

std::string_view WhatToDo(Result result) {
  switch (result) {
    case kStubLibrary:
      return "this is a toolkit's stand-in for the driver: take its folder out of LD_LIBRARY_PATH";
    case kDriverMismatch:
      return "its library and its kernel module are of different releases: restart the machine, "
             "or give the container the host's";
    default:
      return "nvidia-smi shows what it sees";
  }
}

}  // namespace

std::string VersionOf(const Driver& driver) {
  int version = 0;  // 12040: 12.4
  if (driver.driver_get_version == nullptr || driver.driver_get_version(&version) != kSuccess) {
    return "no CUDA that it could name";
  }
  return StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

std::string TextOf(const Driver& driver, Result result) {
  const char *name = nullptr, *text = nullptr;
  if (driver.get_error_name(result, &name) != kSuccess || name == nullptr) {
    return StrCat("CUDA error ", result);
  }
  if (driver.get_error_string(result, &text) != kSuccess || text == nullptr) return name;
  return StrCat(name, ": ", text);
}

LoadedDriver LoadDriver(const char* library) {
  LoadedDriver driver;
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    driver.problem =
        StrCat("NVIDIA's driver is not installed (there is no ", library, "); install ", kReleases);
    return driver;
  }
#define WEFT_CUDA_FIND_(member, symbol, arguments)                                  \
  if (!Find(handle, #symbol, &driver.functions.member)) {                           \
    driver.problem = StrCat("NVIDIA's driver is too old: its ", library, " knows ", \
                            VersionOf(driver.functions),                            \
                            " and has no " #symbol "; install one of ", kReleases); \
    return driver;                                                                  \
  }
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_FIND_)
#undef WEFT_CUDA_FIND_
  const Result result = driver.functions.init(0);
  if (result != kSuccess) {
    driver.problem = StrCat("NVIDIA's driver does not start (", TextOf(driver.functions, result),
                            "); ", WhatToDo(result));
  }
  return driver;
}

}  // namespace weft::device::cuda
