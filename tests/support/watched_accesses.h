// Reports every access to global memory to the emulator's observer, for the kernels of the library
// weft_watched_kernels, where the compiler inserts a call at each access. Other code is not slowed
// down.
#ifndef WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_
#define WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_

#include <cstdint>
#include <string>

namespace weft::testing {

// The text to give to addr2line for an address in this program's code.
std::string CodeText(uintptr_t code);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_
