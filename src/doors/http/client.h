// Sends one HTTP request to a server, for commands that talk to a running one. Blocks; any thread.
#ifndef WEFT_DOORS_HTTP_CLIENT_H_
#define WEFT_DOORS_HTTP_CLIENT_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::serve {

struct HttpCall {
  std::string server;  // "http://127.0.0.1:8080"
  std::string method = "GET";
  std::string path;  // percent-encoded
  std::string body;  // JSON
  std::string api_key;
  std::chrono::milliseconds timeout{60'000};  // for the whole exchange
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// UNAVAILABLE if no answer came; an answer with any HTTP status is OK.
StatusOr<HttpAnswer> CallHttp(const HttpCall& call);

// Encodes everything except letters, digits and -._~ as %XX, so that a name fits into one path
// segment.
std::string PercentEncode(std::string_view text);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_CLIENT_H_
