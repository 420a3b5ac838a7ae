// Which handler answers which request: a table of methods and paths with placeholders.
//
//   void RegisterSessionApi(Router& router, Host& host) {
//     router.Add("GET", "/v1/sessions/{id}", ErrorShape::kOpenAi,
//                [&host](const HttpRequest& request, HttpResponder& responder) { ... });
//
// Filled before the server starts; Find may then be called from any thread.
#ifndef WEFT_HTTP_ROUTER_H_
#define WEFT_HTTP_ROUTER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/api_error.h"
#include "http/http.h"

namespace weft::serve {

struct Route {
  std::string method;
  // "/v1/sessions/{id}/fork": a placeholder stands for one segment that is not empty.
  std::string pattern;
  // How errors that are found before the handler runs look.
  ErrorShape shape = ErrorShape::kOpenAi;
  HttpHandler handler;
  // Answered with 503 by the server itself until the model is loaded, and while draining.
  bool needs_model = true;
  // Also without an API key.
  bool is_public = false;
  // The handler waits for nobody, neither the engine nor a client: it runs on threads that
  // are kept for its like, so that it is answered whatever the others wait for.
  bool is_quick = false;
  // For the operator. Where there are keys of operators, only they are answered, and they need
  // not be API keys too.
  bool is_operators = false;
  // Who watches asks it again and again: what went well is not worth a line of the log.
  bool is_watched = false;
  // What the work takes beside the parsed body, for each byte of the body.
  uint32_t work_bytes_per_byte = 0;
};

class Router {
 public:
  struct Match {
    const Route* route = nullptr;  // null: 404, or 405 when `allowed` names methods
    std::vector<std::string> arguments;
    std::vector<std::string> allowed;
    ErrorShape shape = ErrorShape::kOpenAi;  // of the route, or of what lies beside it
  };

  void Add(Route route);
  void Add(std::string_view method, std::string_view pattern, ErrorShape shape,
           HttpHandler handler);
  // The same for a handler that waits for nobody.
  void AddQuick(std::string_view method, std::string_view pattern, ErrorShape shape,
                HttpHandler handler);
  // `segments` are the parts of the path between its slashes, percent signs decoded, so
  // that a slash written %2F belongs to a name. HEAD finds GET.
  Match Find(std::string_view method, const std::vector<std::string>& segments) const;

 private:
  struct Entry {
    Route route;
    std::vector<std::string> segments;  // of the pattern
  };
  std::vector<Entry> entries_;
};

// "/a/b%20c" -> {"a", "b c"}. False for a path that is not well-formed.
bool SplitPath(std::string_view path, std::vector<std::string>* segments);
// "%2F" -> "/"; with `plus_is_space` as in queries. False where a % starts no escape or
// the result has a NUL.
bool PercentDecode(std::string_view text, bool plus_is_space, std::string* out);

}  // namespace weft::serve

#endif  // WEFT_HTTP_ROUTER_H_
