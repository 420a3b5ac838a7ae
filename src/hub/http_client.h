// Fetching over HTTP and HTTPS: redirects, proxies, and an end to whatever stalls.
//
// Proxies are the environment's (https_proxy, no_proxy and the like), certificates the
// system's or those that SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names. A token is
// sent to the origin (scheme, host and port) of the address that was asked for, to no other
// that it redirects to; HTTPS is never left for HTTP.
//
// Immutable; any number of threads. Each call blocks until it is done.
#ifndef WEFT_HUB_HTTP_CLIENT_H_
#define WEFT_HUB_HTTP_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::hub {

struct HttpOptions {
  int connect_timeout_s = 20;
  // A transfer slower than so many bytes in a second, for so many seconds, is given up.
  int stall_bytes_per_s = 128;
  int stall_s = 60;
  // Asked about every second; a transfer that nobody wants is CANCELLED. May be empty.
  std::function<bool()> is_cancelled;
};

struct HttpRequest {
  std::string url;
  std::string accept;      // empty: anything
  std::string token;       // empty: none
  int64_t first_byte = 0;  // the range from there on, where it is not 0
  // With first_byte: only while the file is still the one of this entity tag.
  std::string if_range;
};

struct HttpHead {
  int status = 0;
  std::string url;                             // where redirects ended
  std::map<std::string, std::string> headers;  // names in lower case
  int64_t content_bytes = -1;                  // of this answer; -1: not told

  std::string_view Header(const std::string& name) const;
};

// What takes the body of an answer that is a success (2xx). An error of it ends the transfer
// and is the call's result.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  virtual Status Begin(const HttpHead& head) = 0;
  virtual Status Add(std::span<const std::byte> bytes) = 0;
};

struct HttpAnswer {
  HttpHead head;
  std::string body;  // of Fetch with a sink: the start of an error's
};

class HttpClient {
 public:
  explicit HttpClient(const HttpOptions& options) : options_(options) {}

  // An answer of any status but a redirect, or an error of the transport: UNAVAILABLE where the
  // server was not reached, DATA_LOSS where the connection broke, DEADLINE_EXCEEDED where it
  // stalled, FAILED_PRECONDITION where trying again changes nothing.
  StatusOr<HttpAnswer> Fetch(const HttpRequest& request, HttpSink* sink) const;
  // The same with the body as text; more than `max_bytes` is an error.
  StatusOr<HttpAnswer> FetchText(const HttpRequest& request, size_t max_bytes) const;

 private:
  const HttpOptions options_;
};

// "https://hub.example:8443" of an address, in lower case; empty where it is none.
std::string OriginOf(std::string_view url);
// "hub.example" of it, for messages.
std::string HostOf(std::string_view url);
// A path's bytes as they stand in an address; '/' stays.
std::string EncodePath(std::string_view path);

}  // namespace weft::hub

#endif  // WEFT_HUB_HTTP_CLIENT_H_
