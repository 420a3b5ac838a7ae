#include "base/check.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/status.h"

namespace weft {

void CheckFailed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "weft: CHECK failed at %s:%d: %s: %s\n", file, line, condition, message);
  std::abort();
}

namespace {

StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return StatusCode::kResourceExhausted;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

Status ErrnoStatus(int error_number, std::string_view what) {
  return MakeStatus(CodeOfErrno(error_number), what, ": ", std::strerror(error_number));
}

}  // namespace weft
