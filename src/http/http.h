// HTTP/1.1 as the handlers see it: a request that has been read whole, and a responder
// that is written to.
//
// Handlers run on threads of the server's pool and may block: on a turn's next event, or
// in Write while the client reads slowly. That is the back-pressure: a handler that is
// held up stops reading its turn, and the engine pauses that turn alone.
#ifndef WEFT_HTTP_HTTP_H_
#define WEFT_HTTP_HTTP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::serve {

struct Route;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query: "/v1/models"
  std::map<std::string, std::string> query;
  HttpHeaders headers;
  std::string body;
  bool has_body = false;        // one is announced, and may not have been read yet
  bool by_second_port = false;  // of HttpServerOptions::second
  std::string id;               // the client's X-Request-Id where it is sane, else our own
  std::string address;          // the client's, without its port
  // Whose request it is: derived from the API key, empty where no keys are in use. Names
  // of sessions and prefixes of one domain are invisible to every other.
  std::string domain;
  bool is_operators = false;  // may see what concerns all keys
  std::string key_name;       // of that key, for logs; may be empty
  // Found for its path; null where none was looked for.
  const Route* route = nullptr;
  // The parts of `path` that the route's placeholders stand for.
  std::vector<std::string> path_arguments;

  // The first header of that name, whatever its case; empty when there is none.
  std::string_view Header(std::string_view name) const;
  // Who is charged for what the request takes: its key's domain, or its address where it has
  // none. Keys tell clients apart also where a proxy gives all of them one address.
  std::string Account() const;
};

// Fewer than `prompt` were cached or computed where the turn ended before its prompt was in.
struct TurnTokens {
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t disk = 0;  // of those cached, read from the disk
  int64_t computed = 0;
  int64_t completion = 0;
};

// One per request, used on its handler's thread unless said otherwise. Either Send, or
// Begin, any number of Write, End. A handler that returns without either is a mistake
// (500). When the client is gone everything becomes a no-op.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void Send(int status, std::string_view content_type, std::string body,
                    HttpHeaders headers = {}) = 0;
  // A streamed response (chunked). False when the client is gone.
  virtual bool Begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  // Waits while more than a bounded number of bytes is unsent. False when the client is
  // gone, or has not read for so long that it counts as gone.
  virtual bool Write(std::string_view data) = 0;
  virtual void End() = 0;

  virtual bool gone() const = 0;  // any thread
  // Called once, on a thread of the server, when the client goes away before the
  // response is complete; at once when it is gone already. It must not block: it cancels
  // a turn. Cleared when the handler returns.
  virtual void OnGone(std::function<void()> gone) = 0;

  // Kept until the answer has left or its client has: what the answer takes meanwhile.
  virtual void KeepUntilSent(std::shared_ptr<void> what) {}

  // The request's; empty where nobody gave it one.
  virtual std::string_view request_id() const { return ""; }

  // What a turn of the answer cost, for the access log; adds up.
  virtual void NoteTokens(const TurnTokens& tokens) {}
};

using HttpHandler = std::function<void(const HttpRequest&, HttpResponder&)>;

}  // namespace weft::serve

#endif  // WEFT_HTTP_HTTP_H_
