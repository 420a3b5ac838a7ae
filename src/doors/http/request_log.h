// The log line of every request, through any front end; docs/operations.md shows one. Any thread.
#ifndef WEFT_DOORS_HTTP_REQUEST_LOG_H_
#define WEFT_DOORS_HTTP_REQUEST_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "doors/http/http.h"

namespace weft::serve {

// Limit for the text of a request and of its answer, each.
inline constexpr size_t kLoggedTextBytes = 4096;
inline constexpr size_t kLoggedWarningBytes = 1024;

struct LoggedRequest {
  std::string_view method;  // "POST", or "gRPC"
  std::string_view path;
  std::string status;  // "200", or gRPC's status name
  int64_t duration_us = 0;
  std::string work;  // what the answer cost, as the log's reader likes it; may be empty
  std::string_view key_name;
  bool gone = false;  // the client went away
  std::string_view id;
  std::string_view warning;  // the answer's warning
  // Texts are logged only if the operator wants that.
  bool with_text = false;
  std::string_view request_text, answer_text;
};

void LogRequest(const LoggedRequest& request);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_REQUEST_LOG_H_
