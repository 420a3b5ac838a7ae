// Whether this build is many times slower than a release: with a sanitizer, or with the engine's
// own checks. Tests then run fewer rounds.
#ifndef WEFT_TESTS_SUPPORT_SLOW_BUILD_H_
#define WEFT_TESTS_SUPPORT_SLOW_BUILD_H_

namespace weft::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(WEFT_DEBUG) || \
    !defined(NDEBUG)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_SLOW_BUILD_H_
