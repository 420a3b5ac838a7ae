#include "doors/http/api_error.h"

#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// How long a client should wait after meeting a full queue: a place is free whenever a turn ends,
// and a retry costs the server next to nothing.
constexpr int kRetryAfterS = 1;

struct Kind {
  int http_status;
  const char* type;
  const char* code;
};

Kind KindOf(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return {400, "invalid_request_error", ""};
    case StatusCode::kUnauthenticated:
      return {401, "authentication_error", "invalid_api_key"};
    case StatusCode::kPermissionDenied:
      return {403, "permission_error", ""};
    case StatusCode::kNotFound:
      return {404, "not_found_error", ""};
    case StatusCode::kFailedPrecondition:
    case StatusCode::kAlreadyExists:
      return {409, "conflict_error", ""};
    case StatusCode::kResourceExhausted:
      return {429, "capacity_error", "capacity_exhausted"};
    case StatusCode::kCancelled:
      return {499, "request_cancelled", ""};  // by the client: nobody reads it
    case StatusCode::kUnimplemented:
      return {501, "not_supported_error", ""};
    case StatusCode::kUnavailable:
      return {503, "unavailable_error", ""};
    case StatusCode::kDeadlineExceeded:
      return {504, "timeout_error", ""};
    default:
      return {500, "server_error", ""};
  }
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError MakeError(int status, std::string type, std::string message) {
  ApiError error;
  error.http_status = status;
  error.type = std::move(type);
  error.message = std::move(message);
  return error;
}

ApiError ToApiError(const Status& status) {
  const Kind kind = KindOf(status.code());
  ApiError error;
  error.http_status = kind.http_status;
  error.message = std::string(Message(status));
  error.type = kind.type;
  error.code = kind.code;
  if (status.code() == StatusCode::kResourceExhausted) error.retry_after_s = kRetryAfterS;
  return error;
}

ApiError FullError(const Status& status) {
  ApiError error = ToApiError(status);
  error.retry_after_s = kRetryAfterS;
  return error;
}

Json PlainErrorBody(const ApiError& error, std::string_view /*request_id*/) {
  Json body = {{"message", error.message},
               {"type", error.type},
               {"param", OrNull(error.param)},
               {"code", OrNull(error.code)}};
  if (error.more.is_object()) body.update(error.more);
  return {{"error", std::move(body)}};
}

void SendError(HttpResponder& responder, const ApiError& error, ErrorShape shape,
               HttpHeaders headers) {
  if (error.retry_after_s > 0) {
    headers.emplace_back("Retry-After", StrCat(error.retry_after_s));
  }
  headers.insert(headers.end(), error.headers.begin(), error.headers.end());
  // Messages quote client input, which need not be UTF-8.
  responder.Send(error.http_status, "application/json",
                 ErrorBody(error, shape, responder.request_id())
                     .dump(-1, ' ', false, Json::error_handler_t::replace),
                 std::move(headers));
}

HttpHeaders RequestIdHeaders(const std::string& request_id, ErrorShape shape) {
  HttpHeaders headers = {{"X-Request-Id", request_id}};
  if (shape.id_header != nullptr) headers.emplace_back(shape.id_header, request_id);
  return headers;
}

}  // namespace weft::serve
