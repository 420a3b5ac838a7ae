// Errors are values: absl::Status and absl::StatusOr, with short constructors that join their
// arguments into the message, and two macros that propagate errors.
//
//   return InvalidArgument("tensor ", name, " has ", n, " values, expected ", m);
//   WEFT_ASSIGN_OR_RETURN(auto file, OpenModelFile(path));
//   WEFT_RETURN_IF_ERROR(file->Verify());
//
// A message is one sentence a user can act on: the problem, the place, and the remedy. No trailing
// full stop.
#ifndef WEFT_BASE_STATUS_H_
#define WEFT_BASE_STATUS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "base/strings.h"

namespace weft {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

inline std::string_view Message(const Status& status) {
  return {status.message().data(), status.message().size()};
}

template <typename... Pieces>
Status MakeStatus(StatusCode code, const Pieces&... pieces) {
  return Status(code, StrCat(pieces...));
}

// Prefixes the message of an error, which keeps its payloads.
template <typename... Pieces>
Status Annotate(const Status& status, const Pieces&... prefix) {
  if (status.ok()) return status;
  Status annotated(status.code(), StrCat(prefix..., Message(status)));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

#define WEFT_DEFINE_STATUS_MAKER_(Name, code)       \
  template <typename... Pieces>                     \
  Status Name(const Pieces&... pieces) {            \
    return MakeStatus(StatusCode::code, pieces...); \
  }
WEFT_DEFINE_STATUS_MAKER_(InvalidArgument, kInvalidArgument)
WEFT_DEFINE_STATUS_MAKER_(NotFound, kNotFound)
WEFT_DEFINE_STATUS_MAKER_(AlreadyExists, kAlreadyExists)
WEFT_DEFINE_STATUS_MAKER_(PermissionDenied, kPermissionDenied)
WEFT_DEFINE_STATUS_MAKER_(FailedPrecondition, kFailedPrecondition)
WEFT_DEFINE_STATUS_MAKER_(OutOfRange, kOutOfRange)
WEFT_DEFINE_STATUS_MAKER_(ResourceExhausted, kResourceExhausted)
WEFT_DEFINE_STATUS_MAKER_(Unimplemented, kUnimplemented)
WEFT_DEFINE_STATUS_MAKER_(Internal, kInternal)
WEFT_DEFINE_STATUS_MAKER_(Unavailable, kUnavailable)
WEFT_DEFINE_STATUS_MAKER_(DataLoss, kDataLoss)
WEFT_DEFINE_STATUS_MAKER_(Cancelled, kCancelled)
WEFT_DEFINE_STATUS_MAKER_(DeadlineExceeded, kDeadlineExceeded)
WEFT_DEFINE_STATUS_MAKER_(Aborted, kAborted)
#undef WEFT_DEFINE_STATUS_MAKER_

// The status of a failed system call: "<what>: No such file or directory", with the code that fits
// `error_number`.
Status ErrnoStatus(int error_number, std::string_view what);

}  // namespace weft

#define WEFT_CONCAT_INNER_(a, b) a##b
#define WEFT_CONCAT_(a, b) WEFT_CONCAT_INNER_(a, b)

#define WEFT_RETURN_IF_ERROR(expression)         \
  do {                                           \
    ::weft::Status weft_status_ = (expression);  \
    if (!weft_status_.ok()) return weft_status_; \
  } while (false)

#define WEFT_ASSIGN_OR_RETURN(declaration, expression) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_CONCAT_(weft_status_or_, __LINE__), declaration, expression)

#define WEFT_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                        \
  if (!temporary.ok()) return std::move(temporary).status();            \
  declaration = *std::move(temporary)

#endif  // WEFT_BASE_STATUS_H_
