// HTTP/1.1 over TCP: reads requests, hands each to its handler, and sends what that writes.
//
// One thread does all reading and sending; a few run the handlers, which hold none of them while
// they wait. A request that finds no free thread waits in its tenant's bounded queue; if that is
// full it gets 503. Handlers that are quick have their own threads and queue, so they are answered
// even if all others are taken. While a request waits or is handled, its connection is still read,
// so that a client's departure is noticed at once; a bounded number of bytes of further (pipelined)
// requests is kept. A client that shuts down its sending half counts as gone.
//
// Any thread may call any method.
#ifndef WEFT_DOORS_HTTP_SERVER_H_
#define WEFT_DOORS_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "doors/http/api_error.h"
#include "doors/http/http.h"
#include "doors/http/load.h"

namespace weft::serve {

struct HttpServerOptions {
  // A name stands for all of its addresses.
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free port
  // A second address to listen on.
  struct Second {
    std::string host;
    int port = 0;
    std::string way_out;  // advice if another program uses the port
  };
  std::optional<Second> second;
  // Requests of one tenant that begin at a time: one thread each. One more is for other tenants,
  // and one for requests that go on. 0: one per core.
  int max_threads = 0;
  int max_waiting = 256;  // requests of a tenant alone waiting for a thread
  // At most half of them from one address. One more replaces a connection that waits for a request,
  // or gets 503. Fewer if the process may not open as many descriptors.
  int max_connections = 1024;
  uint32_t max_header_bytes = 64 << 10;
  uint64_t max_body_bytes = 32 << 20;  // until SetMaxBodyBytes changes it
  // Limits for all requests being read or handled (one more gets 503), and for those of one key or
  // address (one more gets 429).
  uint64_t max_total_body_bytes = uint64_t{256} << 20;
  uint64_t max_share_body_bytes = uint64_t{128} << 20;
  size_t max_unsent_bytes = 256 << 10;  // per response; beyond it handlers wait for room
  // Time limits for a client: for a request's head, for its body, between two pieces of a body,
  // between two requests, and for reading anything of a response.
  std::chrono::milliseconds header_timeout{20'000};
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds body_pause_timeout{15'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds stall_timeout{60'000};
  // For reading anything while others wait for the resources that this response holds.
  std::chrono::milliseconds wanted_stall_timeout{3'000};
};

// Reported for requests that never reach the handler.
struct RejectedRequest {
  std::string id, method, path;
  int status = 0;
};

struct HttpServerHooks {
  // Runs on the I/O thread when a request's head has arrived, before any of its body is read; must
  // not block. It may fill in the owner and the route. False if it has answered the request: its
  // body is then never read. Empty: every request is read.
  std::function<bool(HttpRequest&, HttpResponder&)> admit;
  // Begins on one of the handlers' threads; both arguments live until it has ended.
  std::function<Task<void>(HttpRequest&, HttpResponder&)> handler;
  // Whether the request's handler is quick. It then runs on one of a few reserved threads. Empty:
  // none is.
  std::function<bool(const HttpRequest&)> is_quick;
  // Whether others wait for the resources of a response that its client does not read. Runs on the
  // I/O thread; must not block. Empty: they never do.
  std::function<bool()> others_wait;
  // The form of the server's own errors for a path. Empty: OpenAI's.
  std::function<ErrorShape(std::string_view path)> shape_of;
  std::function<void(const RejectedRequest&)> rejected;  // may be empty
  std::shared_ptr<HttpLoad> load;                        // may be null
};

class HttpServer {
 public:
  // Listening when it returns.
  static StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                     HttpServerHooks hooks);
  virtual ~HttpServer() = default;  // same as Shutdown(0)

  virtual int port() const = 0;
  virtual int second_port() const = 0;  // 0 if there is none
  // Applies to later requests.
  virtual void SetMaxBodyBytes(uint64_t bytes) = 0;
  // Accepts no new connections and no further requests on existing ones; waits at most `grace`
  // until current requests are answered, then closes their connections and waits for the handlers,
  // which are cancelled.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

// 32 random hexadecimal digits: the id of a request that brought none.
std::string NewRequestId();
// Whether an external id is safe to use in a log line and a header.
bool IsSaneRequestId(std::string_view id);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_SERVER_H_
