#include "device/cuda_driver.h"

#include <dlfcn.h>

#include "base/strings.h"

namespace weft::device::cuda {

namespace {

template <typename Pointer>
bool Find(void* library, const char* symbol, Pointer* function) {
  *function = reinterpret_cast<Pointer>(dlsym(library, symbol));
  return *function != nullptr;
}

}  // namespace

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
        StrCat("NVIDIA's driver is not installed (there is no ", library, "); install it");
    return driver;
  }
#define WEFT_CUDA_FIND_(member, symbol, arguments)                                       \
  if (!Find(handle, #symbol, &driver.functions.member)) {                                \
    driver.problem = StrCat("NVIDIA's driver is too old: its ", library,                 \
                            " has no " #symbol "; install one of release 525 or later"); \
    return driver;                                                                       \
  }
  WEFT_CUDA_FUNCTIONS(WEFT_CUDA_FIND_)
#undef WEFT_CUDA_FIND_
  const Result result = driver.functions.init(0);
  if (result != kSuccess) {
    driver.problem = StrCat("NVIDIA's driver finds none (", TextOf(driver.functions, result),
                            "); nvidia-smi shows what it sees");
  }
  return driver;
}

}  // namespace weft::device::cuda
