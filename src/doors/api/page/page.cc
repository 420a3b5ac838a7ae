#include "doors/api/page/page.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "doors/api/fields/error_shapes.h"
#include "doors/api/fields/support.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/page/page_files.h"

namespace weft::serve {
namespace {

// Only content from this server, no inline scripts, no framing. The one policy of trusted types
// allows the worker that reads PDFs (web/src/pdf.ts). The page may also ask MCP servers.
std::string PolicyWith(const PageOptions& options) {
  std::string policy =
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
      "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
      "require-trusted-types-for 'script'; trusted-types weft-pdf; connect-src 'self'";
  for (const std::string& url : options.mcp_urls) {
    const StatusOr<std::string> origin = OriginOf(url);
    WEFT_CHECK(origin.ok(), "the flags are checked");
    StrAppend(&policy, " ", *origin);
  }
  return policy;
}

std::string_view ContentType(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".woff2", "font/woff2"},
  };
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

// Whether one of the tags in If-None-Match weakly equals `tag`.
bool Matches(std::string_view if_none_match, std::string_view tag) {
  for (std::string_view one : StrSplit(if_none_match, ',')) {
    while (one.starts_with(' ') || one.starts_with('\t')) one.remove_prefix(1);
    while (one.ends_with(' ') || one.ends_with('\t')) one.remove_suffix(1);
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == "*" || one == tag) return true;
  }
  return false;
}

void SendFile(const PageFile& file, const std::string& policy, const HttpRequest& request,
              HttpResponder& responder) {
  const std::string tag = StrCat("\"", file.digest, "\"");
  // File names stay the same when contents change, so browsers revalidate each time and get a 304.
  HttpHeaders headers = {{"ETag", tag},
                         {"Cache-Control", "no-cache"},
                         {"Content-Security-Policy", policy},
                         {"X-Content-Type-Options", "nosniff"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cross-Origin-Opener-Policy", "same-origin"},
                         {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (Matches(request.Header("If-None-Match"), tag)) {
    return responder.Send(304, "", "", std::move(headers));
  }
  responder.Send(200, ContentType(file.name), std::string(file.bytes), std::move(headers));
}

void SendNamed(std::string_view name, const std::string& policy, const HttpRequest& request,
               HttpResponder& responder) {
  for (const PageFile& file : PageFiles()) {
    if (file.name == name) return SendFile(file, policy, request, responder);
  }
  SendError(
      responder,
      ToApiError(NotFound("the page has no file ", Printable(name, 100), "; reload the page")),
      kOpenAiErrors);
}

}  // namespace

StatusOr<std::string> OriginOf(std::string_view url) {
  const size_t scheme_end = url.starts_with("https://") ? 8 : url.starts_with("http://") ? 7 : 0;
  const size_t end = url.find_first_of("/?#", scheme_end);
  const std::string_view place =
      url.substr(scheme_end, end == url.npos ? url.npos : end - scheme_end);
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-:[]";
  if (scheme_end == 0 || place.empty() || place.find_first_not_of(kPlain) != place.npos) {
    return InvalidArgument("\"", Printable(url, 200),
                           "\" is not an address such as https://tools.example:8443/mcp");
  }
  return std::string(url.substr(0, scheme_end + place.size()));
}

void RegisterPage(Router& router, const PageOptions& options) {
  const std::string policy = PolicyWith(options);
  router.Add({.method = "GET",
              .pattern = "/v1/page/mcp",
              .shape = kOpenAiErrors,
              .handler =
                  [urls = options.mcp_urls](const HttpRequest&, HttpResponder& responder) {
                    SendJson(responder, {{"servers", urls}});
                  },
              .needs_model = false,
              .is_quick = true,
              .is_watched = true});
  router.Add({.method = "GET",
              .pattern = "/",
              .handler =
                  [policy](const HttpRequest& request, HttpResponder& responder) {
                    if (AnsweredAsOllama(request, responder)) return;
                    SendNamed("index.html", policy, request, responder);
                  },
              .needs_model = false,
              .is_public = true,
              .is_quick = true});
  router.Add({.method = "GET",
              .pattern = "/page/{file}",
              .handler =
                  [policy](const HttpRequest& request, HttpResponder& responder) {
                    SendNamed(request.path_arguments[0], policy, request, responder);
                  },
              .needs_model = false,
              .is_public = true,
              .is_quick = true});
}

}  // namespace weft::serve
