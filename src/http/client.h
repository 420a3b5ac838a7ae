// One HTTP request to a server and its answer, for the commands that talk to one. Blocks;
// any thread.
#ifndef WEFT_HTTP_CLIENT_H_
#define WEFT_HTTP_CLIENT_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::serve {

struct HttpCall {
  std::string server;  // "http://127.0.0.1:8080"
  std::string method = "GET";
  std::string path;  // encoded
  std::string body;  // JSON
  std::string api_key;
  std::chrono::milliseconds timeout{60'000};  // for the whole
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// UNAVAILABLE when no answer came; an answer of any status is OK.
StatusOr<HttpAnswer> CallHttp(const HttpCall& call);

// Everything but letters, digits and -._~ as %XX: a name as one segment of a path.
std::string PercentEncode(std::string_view text);

}  // namespace weft::serve

#endif  // WEFT_HTTP_CLIENT_H_
