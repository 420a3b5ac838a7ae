// WEFT_CHECK: an invariant of our own. When it is false the program has a bug;
// it prints the place and aborts. Whatever comes from outside (files, requests,
// flags) is never checked this way: that is a Status.
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

// Checked in debug builds only, for places too hot to check always.
#ifdef WEFT_DEBUG
#define WEFT_DCHECK(condition, message) WEFT_CHECK(condition, message)
#else
#define WEFT_DCHECK(condition, message) \
  do {                                  \
  } while (false && (condition))
#endif

#endif  // WEFT_BASE_CHECK_H_
