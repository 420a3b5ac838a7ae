// HTTP/1.1 as seen by handlers: a fully read request, and a responder to write to.
//
// Handlers run on a few threads, which they must not block. Those that wait are tasks: for a turn's
// next event, or for room while the client reads slowly. This is the back-pressure: a handler that
// waits for room does not read its turn, and the engine pauses just that turn.
#ifndef WEFT_DOORS_HTTP_HTTP_H_
#define WEFT_DOORS_HTTP_HTTP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "async/task.h"

namespace weft::serve {

struct FetchedPictures;
struct Route;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query: "/v1/models"
  std::map<std::string, std::string> query;
  HttpHeaders headers;
  std::string body;
  bool has_body = false;        // announced, but possibly not read yet
  bool by_second_port = false;  // came in by HttpServerOptions::second
  std::string id;               // the client's X-Request-Id if it is sane, else our own
  std::string address;          // the client's, without port
  // The request's owner: derived from the API key, empty if no keys are in use. Session names and
  // prefixes of one domain are invisible to all others.
  std::string domain;
  bool is_operators = false;  // may see data about all keys
  std::string key_name;       // the key's name for logs; may be empty
  // The route for its path; null if none was looked up.
  const Route* route = nullptr;
  // The parts of `path` that match the route's placeholders.
  std::vector<std::string> path_arguments;
  // The pictures that its body names by addresses; null if none were fetched.
  std::shared_ptr<FetchedPictures> pictures;

  // The first header with that name, in any case; empty if there is none.
  std::string_view Header(std::string_view name) const;
  // The account charged for the request: its key's domain or, without a key, its ClientNetwork.
  // Keys distinguish clients even if a proxy gives all of them one address.
  std::string Account() const;
};

// What an answer cost, by name. Handlers choose the names.
using HttpWork = std::map<std::string_view, int64_t>;

// One per request, used by its handler unless stated otherwise. Call either Send, or Begin, any
// number of Write, and End. A handler that ends without either has a bug (500). Once the client has
// left, everything is a no-op.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void Send(int status, std::string_view content_type, std::string body,
                    HttpHeaders headers = {}) = 0;
  // Begins a streamed (chunked) response. False if the client has left.
  virtual bool Begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  // Does not wait: a handler that writes much waits for Room now and then. False if the client has
  // left, or has not read for so long that it counts as gone.
  virtual bool Write(std::string_view data) = 0;
  // Waits while too many bytes are unsent and the client is there.
  virtual Task<void> Room() { co_return; }
  virtual void End() = 0;

  virtual bool gone() const = 0;  // any thread
  // The request's cancellation: requested when the client leaves before the response is complete,
  // also because the server shuts down. Callbacks run on a server thread and must not block: they
  // cancel turns. Any thread.
  virtual std::stop_token cancellation() const = 0;

  // Keeps `what`, the resources of the answer, until the answer is sent or the client has left.
  virtual void KeepUntilSent(std::shared_ptr<void> what) {}

  // Empty if the request has none.
  virtual std::string_view request_id() const { return ""; }

  // Adds a header to the answer, unless it has begun.
  virtual void NoteHeader(std::string_view name, std::string_view value) {}
  // Adds to the cost of this answer, for the access log. Names live as long as the program.
  virtual void NoteWork(const HttpWork& work) {}
};

// A handler that waits for nobody, and one that may. Both arguments live until it has ended.
using HttpHandler = std::function<void(const HttpRequest&, HttpResponder&)>;
using HttpTask = std::function<Task<void>(const HttpRequest&, HttpResponder&)>;

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_HTTP_H_
