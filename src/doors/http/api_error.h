// An error on its way to a client, before a protocol formats it. The server's own form is
// {"error":{message,type,param,code}}; APIs with another one say so at their routes.
#ifndef WEFT_DOORS_HTTP_API_ERROR_H_
#define WEFT_DOORS_HTTP_API_ERROR_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type;                  // invalid_request_error, authentication_error, ...
  std::string code;                  // context_length_exceeded, ...; may be empty
  std::string param;                 // the field at fault; may be empty
  int retry_after_s = 0;             // > 0: send a Retry-After header
  nlohmann::ordered_json more = {};  // further members; null: none
  HttpHeaders headers = {};          // further headers
  // Its code says why a session cannot be used (SessionTrouble), and is in every API's form. A
  // stream ends with the error, without the mark of a complete answer.
  bool is_session_trouble = false;
};

ApiError MakeError(int status, std::string type, std::string message);

// INVALID_ARGUMENT and OUT_OF_RANGE give 400, NOT_FOUND 404, FAILED_PRECONDITION and ALREADY_EXISTS
// 409, RESOURCE_EXHAUSTED 429 with Retry-After, UNIMPLEMENTED 501, UNAVAILABLE 503,
// DEADLINE_EXCEEDED 504, all others 500.
ApiError ToApiError(const Status& status);
// The same for a temporary shortage: with Retry-After, whatever the code.
ApiError FullError(const Status& status);

// How a protocol writes its errors.
struct ErrorShape {
  nlohmann::ordered_json (*body)(const ApiError& error, std::string_view request_id);
  // A second header with the request's id, for clients that use another name; may be null.
  const char* id_header = nullptr;

  bool operator==(const ErrorShape&) const = default;
};
nlohmann::ordered_json PlainErrorBody(const ApiError& error, std::string_view request_id);
inline constexpr ErrorShape kPlainErrors{.body = &PlainErrorBody};

inline nlohmann::ordered_json ErrorBody(const ApiError& error, ErrorShape shape,
                                        std::string_view request_id = "") {
  return shape.body(error, request_id);
}
void SendError(HttpResponder& responder, const ApiError& error, ErrorShape shape,
               HttpHeaders headers = {});
// The headers with the request id, in every answer.
HttpHeaders RequestIdHeaders(const std::string& request_id, ErrorShape shape);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_API_ERROR_H_
