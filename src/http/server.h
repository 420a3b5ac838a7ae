// HTTP/1.1 over TCP: reads requests, hands each to the handler on a thread of a bounded
// pool, sends what it writes.
//
// One thread does all reading and sending. A request that finds no thread waits in a
// bounded queue, one more is answered with 503. Those whose handlers wait for nobody have
// threads and a queue of their own: they are answered also when all others are taken. While a
// request waits or is worked on, its connection is still read, so that a client that goes away is
// noticed at once, and a bounded number of bytes of further (pipelined) requests is kept. A client
// that ends its sending half counts as gone.
//
// Any thread may call any method.
#ifndef WEFT_HTTP_SERVER_H_
#define WEFT_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "http/api_error.h"
#include "http/http.h"
#include "http/load.h"

namespace weft::serve {

struct HttpServerOptions {
  // A name stands for all of its addresses.
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any that is free
  // Listened on as well.
  struct Second {
    std::string host;
    int port = 0;
    std::string way_out;  // what to do where another program has the port
  };
  std::optional<Second> second;
  int max_threads = 64;
  int max_waiting = 256;       // requests that wait for a thread
  int max_connections = 1024;  // one more is answered with 503
  uint32_t max_header_bytes = 64 << 10;
  uint64_t max_body_bytes = 32 << 20;  // until SetMaxBodyBytes says otherwise
  // Of all requests that are being read or worked on; one more is answered with 503. Of
  // those of one key or one address; one more is answered with 429.
  uint64_t max_total_body_bytes = uint64_t{256} << 20;
  uint64_t max_share_body_bytes = uint64_t{128} << 20;
  size_t max_unsent_bytes = 256 << 10;  // of one response; then its handler waits
  // What a client may take: for the head of a request, for its body, between two pieces of
  // that, between two requests, and for reading anything at all of a response.
  std::chrono::milliseconds header_timeout{20'000};
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds body_pause_timeout{15'000};
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds stall_timeout{60'000};
  // For reading anything at all while others wait for what this response holds.
  std::chrono::milliseconds wanted_stall_timeout{3'000};
};

// What a server tells about requests that never reach the handler.
struct RejectedRequest {
  std::string id, method, path;
  int status = 0;
};

struct HttpServerHooks {
  // Runs on the I/O thread when the head of a request has come, before any of its body is
  // read; it must not block. It may complete the request with what only it knows: whose it
  // is, its route. False when it has answered it: then the body is never read. Empty: every
  // request is read.
  std::function<bool(HttpRequest&, HttpResponder&)> admit;
  // Runs on a thread of the pool.
  std::function<void(HttpRequest&, HttpResponder&)> handler;
  // Whether the handler of such a request waits for nobody. It is then run on one of a few
  // threads that are kept for those. Empty: no handler is.
  std::function<bool(const HttpRequest&)> is_quick;
  // Whether others wait for what a response holds that its client does not read. On the I/O
  // thread; it must not block. Empty: they never do.
  std::function<bool()> others_wait;
  // How the errors of the server itself look for a path. Empty: OpenAI's shape.
  std::function<ErrorShape(std::string_view path)> shape_of;
  std::function<void(const RejectedRequest&)> rejected;  // may be empty
  std::shared_ptr<HttpLoad> load;                        // may be null
};

class HttpServer {
 public:
  // Listens when it returns.
  static StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                     HttpServerHooks hooks);
  virtual ~HttpServer() = default;  // as Shutdown(0)

  virtual int port() const = 0;
  virtual int second_port() const = 0;  // 0: there is none
  // Of requests that come from now on.
  virtual void SetMaxBodyBytes(uint64_t bytes) = 0;
  // Takes no new connection and no further request on those there are; waits until the
  // requests being worked on are answered, at most `grace`, then ends their connections
  // and waits for the handlers, which see their clients gone.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

// 32 random hexadecimal digits: the name of a request that brought none.
std::string NewRequestId();
// Whether a name from outside is fit for a line of the log and for a header.
bool IsSaneRequestId(std::string_view id);

}  // namespace weft::serve

#endif  // WEFT_HTTP_SERVER_H_
