// Refuses requests by the browser's headers about the page that sends them. Any web page can make
// its visitor's browser send requests to a server on the visitor's own machine; anything such a
// page must not do is refused here, before a key or a body is looked at:
//
//  - a foreign `Host`: a name pointed at this machine to make the browser believe that the page
//    and the server are the same site (DNS rebinding);
//  - a foreign `Origin`, and cross-site fetches without one (an image, a form);
//  - a body that is not JSON: a page may send those without a preflight.
//
// Other programs send none of these headers and are not affected.
//
// Immutable; any thread.
#ifndef WEFT_DOORS_HTTP_GUARD_H_
#define WEFT_DOORS_HTTP_GUARD_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "doors/http/api_error.h"
#include "doors/http/http.h"

namespace weft::serve {

class HttpGuard {
 public:
  struct Options {
    // The listening address. On a loopback address, `Host` must be one of its names.
    std::string bind_host = "127.0.0.1";
    // Further names that clients may use. On other addresses than loopback any name is accepted,
    // unless this lists some.
    std::vector<std::string> allowed_hosts;
    // Origins whose pages may send requests and read answers: "https://page.example"; "localhost"
    // is every page on this machine, "*" is any. The server's own pages are always allowed.
    std::vector<std::string> cors_origins;
  };

  // INVALID_ARGUMENT names an invalid host or origin.
  static StatusOr<HttpGuard> Create(const Options& options);
  HttpGuard() : HttpGuard(Options()) {}

  // Why the request is refused, judging by its head alone; nothing if it is allowed. A link on
  // another page may open a public route (`is_public`): only the user reads the result.
  std::optional<ApiError> Refusal(const HttpRequest& head, bool is_public) const;
  // The headers that let a page read the answer; none if it may not.
  HttpHeaders CorsHeaders(const HttpRequest& head) const;

 private:
  explicit HttpGuard(const Options& options);

  bool KnowsHost(std::string_view host) const;
  bool ListsOrigin(std::string_view origin) const;
  std::optional<ApiError> RefusalOfHost(const HttpRequest& head) const;
  std::optional<ApiError> RefusalOfOrigin(const HttpRequest& head, bool is_public) const;
  std::optional<ApiError> RefusalOfBody(const HttpRequest& head) const;

  bool checks_host_ = true;
  bool any_origin_ = false;           // "*"
  bool local_origins_ = false;        // "localhost"
  std::vector<std::string> hosts_;    // from --host and --allowed-host, normalised by NameOf
  std::vector<std::string> origins_;  // in lower case
};

// Names of this machine only: "localhost", 127.0.0.0/8, "::1", with or without brackets.
bool IsLoopbackHost(std::string_view host);
// Addresses that stand for all of this machine: "0.0.0.0" and "::".
bool IsAnyAddress(std::string_view host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_HTTP_GUARD_H_
