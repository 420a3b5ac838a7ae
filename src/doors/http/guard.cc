#include "doors/http/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

bool IsNumber(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// "Name.:8080" -> "name", "[::1]:8080" -> "::1". Empty if it is not a host with or without a port.
std::string NameOf(std::string_view host) {
  std::string_view name = host, port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == host.npos) return "";
    name = host.substr(1, end - 1);
    port = host.substr(end + 1);
  } else if (const size_t colon = host.find(':'); colon != host.npos) {
    if (host.find(':', colon + 1) != host.npos) return AsciiLower(host);  // IPv6 without brackets
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (!port.empty() && (port.front() != ':' || (port.size() > 1 && !IsNumber(port.substr(1))))) {
    return "";
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  return AsciiLower(name);
}

// The part of an origin after "http://" or "https://", without the default port; empty for all
// other origins, including "null".
std::string AuthorityOf(std::string_view origin) {
  const std::string lower = AsciiLower(origin);
  std::string_view rest = lower;
  const bool is_https = rest.starts_with("https://");
  if (!is_https && !rest.starts_with("http://")) return "";
  rest.remove_prefix(is_https ? 8 : 7);
  if (rest.empty() || rest.find_first_of("/?#@") != rest.npos) return "";
  const std::string_view port = is_https ? ":443" : ":80";
  if (rest.ends_with(port)) rest.remove_suffix(port.size());
  return std::string(rest);
}

// Whether a page of this origin was sent by the server under the name in `host`. The scheme is not
// compared, since a proxy may change it.
bool IsSameOrigin(std::string_view origin, std::string_view host) {
  const std::string authority = AuthorityOf(origin);
  if (authority.empty()) return false;
  std::string own = AsciiLower(host);
  const bool is_https = AsciiLower(origin).starts_with("https:");
  const std::string_view port = is_https ? ":443" : ":80";
  if (own.ends_with(port)) own.resize(own.size() - port.size());
  return authority == own;
}

int Count(const HttpRequest& head, std::string_view name) {
  return static_cast<int>(
      std::count_if(head.headers.begin(), head.headers.end(),
                    [&](const auto& header) { return EqualIgnoringCase(header.first, name); }));
}

ApiError Forbidden(std::string message) {
  return MakeError(403, "permission_error", std::move(message));
}

// Accepts "application/json; charset=utf-8" and "application/problem+json".
bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  const std::string lower = AsciiLower(type);
  return lower == "application/json" ||
         (lower.starts_with("application/") && lower.ends_with("+json"));
}

bool IsFormOfCurl(std::string_view content_type) {
  return EqualIgnoringCase(content_type.substr(0, content_type.find(';')),
                           "application/x-www-form-urlencoded");
}

}  // namespace

bool IsLoopbackHost(std::string_view host) {
  const std::string name = NameOf(host);
  if (name == "localhost") return true;
  in6_addr v6;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == name.npos;
}

bool IsAnyAddress(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

HttpGuard::HttpGuard(const Options& options)
    : checks_host_(IsLoopbackHost(options.bind_host) || !options.allowed_hosts.empty()) {
  hosts_.push_back(NameOf(options.bind_host));
  for (const std::string& host : options.allowed_hosts) hosts_.push_back(NameOf(host));
  for (const std::string& origin : options.cors_origins) {
    if (origin == "*") {
      any_origin_ = true;
    } else if (origin == "localhost") {
      local_origins_ = true;
    } else {
      origins_.push_back(AsciiLower(origin));
    }
  }
}

StatusOr<HttpGuard> HttpGuard::Create(const Options& options) {
  for (const std::string& host : options.allowed_hosts) {
    if (NameOf(host).empty() || host.find_first_of("/ *") != host.npos) {
      return InvalidArgument("--allowed-host ", Printable(host, 100),
                             " is not a host name; write it as in a URL, such as gpu.example");
    }
  }
  for (const std::string& origin : options.cors_origins) {
    const bool is_word = origin == "*" || origin == "localhost" || origin == "null";
    const size_t scheme = origin.find("://");
    const bool is_origin = scheme != origin.npos && scheme > 0 && scheme + 3 < origin.size() &&
                           origin.find_first_of("/ ", scheme + 3) == origin.npos;
    if (!is_word && !is_origin) {
      return InvalidArgument("--cors-origin ", Printable(origin, 100),
                             " is not an origin; write it as https://page.example or "
                             "http://127.0.0.1:3000, or localhost, or *");
    }
  }
  return HttpGuard(options);
}

bool HttpGuard::KnowsHost(std::string_view host) const {
  const std::string name = NameOf(host);
  if (name.empty()) return false;
  return IsLoopbackHost(host) || std::find(hosts_.begin(), hosts_.end(), name) != hosts_.end();
}

bool HttpGuard::ListsOrigin(std::string_view origin) const {
  if (any_origin_) return true;
  const std::string lower = AsciiLower(origin);
  if (std::find(origins_.begin(), origins_.end(), lower) != origins_.end()) return true;
  if (!local_origins_) return false;
  const std::string authority = AuthorityOf(lower);
  return !authority.empty() && IsLoopbackHost(authority);
}

std::optional<ApiError> HttpGuard::RefusalOfHost(const HttpRequest& head) const {
  if (Count(head, "host") > 1) {
    return MakeError(400, "invalid_request_error", "a request must have exactly one Host header");
  }
  const std::string_view host = head.Header("Host");
  // Browsers always send it.
  if (!checks_host_ || host.empty() || KnowsHost(host)) return std::nullopt;
  return Forbidden(StrCat("this server does not accept the host name ", Printable(host, 100),
                          "; to allow it, start the server with --allowed-host NAME"));
}

std::optional<ApiError> HttpGuard::RefusalOfOrigin(const HttpRequest& head, bool is_public) const {
  if (any_origin_) return std::nullopt;
  const std::string_view origin = head.Header("Origin");
  if (Count(head, "origin") > 0) {
    const bool may = Count(head, "origin") == 1 &&
                     (IsSameOrigin(origin, head.Header("Host")) || ListsOrigin(origin));
    if (may) return std::nullopt;
    return Forbidden(
        StrCat("pages of ", Printable(origin, 100),
               " may not use this server; to allow them, start it with --cors-origin ORIGIN"));
  }
  const std::string_view site = head.Header("Sec-Fetch-Site");
  if (site.empty() || site == "same-origin" || site == "none") return std::nullopt;
  const bool is_link = (head.method == "GET" || head.method == "HEAD") &&
                       head.Header("Sec-Fetch-Mode") == "navigate" &&
                       head.Header("Sec-Fetch-Dest") == "document";
  if (is_public && is_link) return std::nullopt;
  return Forbidden("pages of other sites may not use this server without stating their origin");
}

std::optional<ApiError> HttpGuard::RefusalOfBody(const HttpRequest& head) const {
  if (!head.has_body) return std::nullopt;
  const std::string_view type = head.Header("Content-Type");
  if (IsJson(type)) return std::nullopt;
  const bool from_page = Count(head, "origin") > 0 || Count(head, "sec-fetch-site") > 0;
  if (!from_page && (type.empty() || IsFormOfCurl(type))) return std::nullopt;
  return MakeError(
      415, "invalid_request_error",
      StrCat("request bodies must be JSON; send the header Content-Type: application/json",
             type.empty() ? "" : " instead of ", Printable(type, 100)));
}

std::optional<ApiError> HttpGuard::Refusal(const HttpRequest& head, bool is_public) const {
  if (auto refusal = RefusalOfHost(head)) return refusal;
  if (auto refusal = RefusalOfOrigin(head, is_public)) return refusal;
  return RefusalOfBody(head);
}

HttpHeaders HttpGuard::CorsHeaders(const HttpRequest& head) const {
  const std::string_view origin = head.Header("Origin");
  if (origin.empty() || !ListsOrigin(origin)) return {};
  HttpHeaders headers = {
      {"Access-Control-Allow-Origin", any_origin_ ? "*" : std::string(origin)},
      {"Access-Control-Expose-Headers",
       "X-Request-Id, request-id, Retry-After, X-Weft-Ignored, X-Weft-Owner, X-Weft-Warning"},
      {"Vary", "Origin"}};
  if (head.method == "OPTIONS") {
    const std::string_view asked = head.Header("Access-Control-Request-Headers");
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers",
                         asked.empty() ? "Authorization, Content-Type, x-api-key"
                                       : std::string(asked.substr(0, 1000)));
    headers.emplace_back("Access-Control-Max-Age", "3600");
  }
  return headers;
}

}  // namespace weft::serve
