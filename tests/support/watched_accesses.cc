#include "tests/support/watched_accesses.h"

#include <array>
#include <cstddef>
#include <cstdio>

#include "compute/device/emulator.h"

extern "C" const char __executable_start;  // defined by the linker

namespace weft::testing {

std::string CodeText(uintptr_t code) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%#zx",
                static_cast<size_t>(code - reinterpret_cast<uintptr_t>(&__executable_start)));
  return text.data();
}

namespace {

void Tell(const void* p, size_t bytes, bool writes, const void* code) {
  namespace emulator = device::emulator;
  if (emulator::observer == nullptr || emulator::IsOwn(p)) return;
  emulator::observer->OnGlobal(p, bytes, writes, reinterpret_cast<uintptr_t>(code));
}

}  // namespace

}  // namespace weft::testing

// GCC calls these before each access when it compiles with address checks as calls only.
#define WEFT_ACCESS_(name, bytes, writes) \
  extern "C" void name(const void* p);    \
  void name(const void* p) { weft::testing::Tell(p, bytes, writes, __builtin_return_address(0)); }
#define WEFT_ACCESSES_(kind, writes)                                     \
  WEFT_ACCESS_(__asan_##kind##1_noabort, 1, writes)                      \
  WEFT_ACCESS_(__asan_##kind##2_noabort, 2, writes)                      \
  WEFT_ACCESS_(__asan_##kind##4_noabort, 4, writes)                      \
  WEFT_ACCESS_(__asan_##kind##8_noabort, 8, writes)                      \
  WEFT_ACCESS_(__asan_##kind##16_noabort, 16, writes)                    \
  extern "C" void __asan_##kind##N_noabort(const void* p, size_t bytes); \
  void __asan_##kind##N_noabort(const void* p, size_t bytes) {           \
    weft::testing::Tell(p, bytes, writes, __builtin_return_address(0));  \
  }
WEFT_ACCESSES_(load, false)
WEFT_ACCESSES_(store, true)
extern "C" void __asan_before_dynamic_init(const char*);
extern "C" void __asan_after_dynamic_init();
void __asan_before_dynamic_init(const char* /*module*/) {}
void __asan_after_dynamic_init() {}
