// Which requests may come in, by what a browser says about the page that sends them. Any page
// on the web can make its visitor's browser ask a server on that visitor's own machine, so
// what such a page may not do is refused here, before a key or a body is looked at:
//
//  - a foreign `Host`: a name that was pointed at this machine only to make the browser
//    believe that the page and the server are one (DNS rebinding);
//  - a foreign `Origin`, and a fetch from elsewhere that names none (an image, a form);
//  - a body that is no JSON: what a page may send without asking first.
//
// Programs that are no browser send none of these headers and notice nothing.
//
// Immutable; any thread.
#ifndef WEFT_HTTP_GUARD_H_
#define WEFT_HTTP_GUARD_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "http/api_error.h"
#include "http/http.h"

namespace weft::serve {

class HttpGuard {
 public:
  struct Options {
    // Where the server listens. On a loopback address `Host` must be a name of it.
    std::string bind_host = "127.0.0.1";
    // Further names that clients may use. Elsewhere than on loopback any name will do unless
    // there are some here.
    std::vector<std::string> allowed_hosts;
    // Origins whose pages may ask and read: "https://page.example"; "localhost" is every
    // page of this machine, "*" any at all. The server's own pages always may.
    std::vector<std::string> cors_origins;
  };

  // INVALID_ARGUMENT names a host or an origin that could never be one.
  static StatusOr<HttpGuard> Create(const Options& options);
  HttpGuard() : HttpGuard(Options()) {}

  // Why the request may not come in, from its head alone; nothing where it may. A link on
  // another page may open what needs no key (`is_public`): nobody but the user reads that.
  std::optional<ApiError> Refusal(const HttpRequest& head, bool is_public) const;
  // The headers that let a page read the answer; none for one that may not.
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
  std::vector<std::string> hosts_;    // of --host and --allowed-host, as NameOf has them
  std::vector<std::string> origins_;  // in lower case
};

// Of this machine alone: "localhost", "127.0.0.1" and its kin, "::1", with or without brackets.
bool IsLoopbackHost(std::string_view host);

}  // namespace weft::serve

#endif  // WEFT_HTTP_GUARD_H_
