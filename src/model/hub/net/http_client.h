// Fetches over HTTP and HTTPS, with redirects, proxies and timeouts.
//
// Proxies come from the environment (https_proxy, no_proxy and the like), certificates from the
// system or from SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE. A token is sent only to the
// origin (scheme, host and port) of the requested URL, not to redirect targets elsewhere; HTTPS
// never redirects to HTTP.
//
// Immutable; any number of threads. Each call blocks until it is done.
#ifndef WEFT_MODEL_HUB_NET_HTTP_CLIENT_H_
#define WEFT_MODEL_HUB_NET_HTTP_CLIENT_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/hub/net/byte_budget.h"

namespace weft::hub {

struct HttpOptions {
  int connect_timeout_s = 20;
  // Give up a transfer that stays slower than this for `stall_s` seconds.
  int stall_bytes_per_s = 128;
  int stall_s = 60;
  // For a text; a file may take any time, and tells its progress.
  int text_s = 300;
  // Polled about every second; if true, the transfer fails with CANCELLED. May be empty.
  std::function<bool()> is_cancelled;
  // Whether a connection to this address is allowed, which a name, or a redirect, led to. Asked for
  // every connection; without a proxy, which would hide the address. May be empty.
  std::function<bool(const sockaddr* address)> may_connect;
  // Takes the bytes of all bodies; an error from it is the transfer's. May be null.
  std::shared_ptr<ByteBudget> budget;
};

struct HttpRequest {
  std::string url;
  std::string accept;      // empty: anything
  std::string token;       // empty: none
  int64_t first_byte = 0;  // if not 0, request the range from there on
  // With first_byte: only if the file still has this entity tag.
  std::string if_range;
  int max_s = 0;  // for the whole transfer; 0: any time
};

struct HttpHead {
  int status = 0;
  std::string url;                             // after redirects
  std::map<std::string, std::string> headers;  // names in lower case
  int64_t content_bytes = -1;                  // this answer's; -1: unknown

  std::string_view Header(const std::string& name) const;
};

// Receives the body of a successful answer (2xx). An error from it ends the transfer and becomes
// the call's result.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  virtual Status Begin(const HttpHead& head) = 0;
  virtual Status Add(std::span<const std::byte> bytes) = 0;
};

struct HttpAnswer {
  HttpHead head;
  std::string body;  // Fetch with a sink: the beginning of an error's body
};

class HttpClient {
 public:
  explicit HttpClient(const HttpOptions& options) : options_(options) {}

  // An answer with any status except a redirect, or a transport error: UNAVAILABLE if the server
  // was not reached, DATA_LOSS if the connection broke, DEADLINE_EXCEEDED if it stalled,
  // FAILED_PRECONDITION if a retry would not help.
  StatusOr<HttpAnswer> Fetch(const HttpRequest& request, HttpSink* sink) const;
  // The same with the body as text; more than `max_bytes` is an error.
  StatusOr<HttpAnswer> FetchText(const HttpRequest& request, size_t max_bytes) const;

 private:
  const HttpOptions options_;
};

// "https://hub.example:8443" of a URL, in lower case; empty if it is not one.
std::string OriginOf(std::string_view url);
// Whether a text is http or https, a host and maybe a port, and nothing else.
bool IsBareOrigin(std::string_view text);
// "hub.example" of a URL, for messages.
std::string HostOf(std::string_view url);
// Percent-encodes a path for a URL; keeps '/'.
std::string EncodePath(std::string_view path);

}  // namespace weft::hub

#endif  // WEFT_MODEL_HUB_NET_HTTP_CLIENT_H_
