// The line that the log has for every request, whichever way it came in: docs/SERVE.md says
// what stands there. Any thread.
#ifndef WEFT_HTTP_REQUEST_LOG_H_
#define WEFT_HTTP_REQUEST_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/http.h"

namespace weft::serve {

// Of a request's text and of its answer's, each.
inline constexpr size_t kLoggedTextBytes = 4096;
inline constexpr size_t kLoggedWarningBytes = 1024;

struct LoggedRequest {
  std::string_view method;  // "POST", or "gRPC"
  std::string_view path;
  std::string status;  // "200", or the name of gRPC's code
  int64_t duration_us = 0;
  TurnTokens tokens;  // all 0 where there was no turn
  std::string_view key_name;
  bool gone = false;  // the client went away
  std::string_view id;
  std::string_view warning;  // what the answer warns of
  // What was said is logged only where the operator wants it.
  bool with_text = false;
  std::string_view request_text, answer_text;
};

void LogRequest(const LoggedRequest& request);

}  // namespace weft::serve

#endif  // WEFT_HTTP_REQUEST_LOG_H_
