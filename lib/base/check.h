// WEFT_CHECK asserts an internal invariant: if it is false, the program has a bug, prints the
// location and aborts. Never use it for external input (files, requests, flags); return a Status
// instead.
#ifndef WEFT_BASE_CHECK_H_
#define WEFT_BASE_CHECK_H_

namespace weft {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* message);

}  // namespace weft

#define WEFT_CHECK(condition, message)                              \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::weft::CheckFailed(__FILE__, __LINE__, #condition, message); \
  } while (false)

// Checked in debug builds only; for hot paths.
#ifdef WEFT_DEBUG
#define WEFT_DCHECK(condition, message) WEFT_CHECK(condition, message)
#else
#define WEFT_DCHECK(condition, message) \
  do {                                  \
  } while (false && (condition))
#endif

#endif  // WEFT_BASE_CHECK_H_
