// Maps requests to handlers: a table of methods and path patterns with placeholders.
//
//   void RegisterSessionApi(Router& router, Host& host) {
//     router.Add("GET", "/v1/sessions/{id}", kPlainErrors,
//                [&host](const HttpRequest& request, HttpResponder& responder) { ... });
//
// Filled before the server starts; after that, Find may be called from any thread.
#ifndef WEFT_DOORS_HTTP_ROUTER_H_
#define WEFT_DOORS_HTTP_ROUTER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "doors/http/api_error.h"
#include "doors/http/http.h"

namespace weft::serve {

struct Route {
  std::string method;
  // "/v1/sessions/{id}/fork": a placeholder matches one non-empty segment.
  std::string pattern;
  // The form of errors found before the handler runs.
  ErrorShape shape = kPlainErrors;
  // One of the two: `task` if it may wait.
  HttpHandler handler;
  HttpTask task;
  // The server itself answers 503 until the model is loaded, and while draining.
  bool needs_model = true;
  // Accessible without an API key.
  bool is_public = false;
  // One that is short, though a task may wait: it runs on threads reserved for such handlers, so
  // that it is answered whatever the others do.
  bool is_quick = false;
  // For operators. If operator keys exist, only they are accepted, and they need not be API keys
  // too.
  bool is_operators = false;
  // Polled by monitoring: successful requests are not logged.
  bool is_watched = false;
  // With "stream": true it answers with server-sent events.
  bool streams_events = false;
  // Memory for the work besides the parsed body, per byte of the body.
  uint32_t work_bytes_per_byte = 0;
};

class Router {
 public:
  struct Match {
    const Route* route = nullptr;  // null: 404, or 405 if `allowed` lists methods
    std::vector<std::string> arguments;
    std::vector<std::string> allowed;
    ErrorShape shape = kPlainErrors;  // the route's, or that of related paths
  };

  void Add(Route route);
  void Add(std::string_view method, std::string_view pattern, ErrorShape shape,
           HttpHandler handler);
  void AddTask(std::string_view method, std::string_view pattern, ErrorShape shape, HttpTask task);
  // For a task that streams events (streams_events).
  void AddStream(std::string_view method, std::string_view pattern, ErrorShape shape,
                 HttpTask task);
  // For a handler that is short (is_quick).
  void AddQuick(std::string_view method, std::string_view pattern, ErrorShape shape,
                HttpHandler handler);
  // The form of errors below a path, "/v1/messages", for requests that match no route.
  void SetShapeBelow(std::string_view path, ErrorShape shape);
  // `segments` are the percent-decoded parts of the path between slashes, so that %2F is part of a
  // name. HEAD finds GET.
  Match Find(std::string_view method, const std::vector<std::string>& segments) const;

 private:
  struct Entry {
    Route route;
    std::vector<std::string> segments;  // the pattern's
  };
  struct Shape {
    std::vector<std::string> segments;
    ErrorShape shape;
  };
  std::vector<Entry> entries_;
  std::vector<Shape> shapes_;
};

// "/a/b%20c" -> {"a", "b c"}. False for a malformed path.
bool SplitPath(std::string_view path, std::vector<std::string>* segments);
// "%2F" -> "/"; with `plus_is_space` as in queries. False if a % does not begin an escape or the
// result contains a NUL.
bool PercentDecode(std::string_view text, bool plus_is_space, std::string* out);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_ROUTER_H_
