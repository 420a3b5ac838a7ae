// Tells the emulator's observer of every access to global memory by the kernels of the library
// weft_watched_kernels: there the compiler calls a function at each. Nothing else is slower.
#ifndef WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_
#define WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_

#include <cstdint>
#include <string>

namespace weft::testing {

// What addr2line is given for an address in the code of this program.
std::string CodeText(uintptr_t code);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_WATCHED_ACCESSES_H_
