// Fuzzing of our own parsers for request heads: paths with their placeholders and percent signs,
// names of hosts and origins, and files of API keys.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "doors/host/api_keys.h"
#include "doors/http/client.h"
#include "doors/http/guard.h"
#include "doors/http/router.h"

namespace weft::serve {
namespace {

Router MakeRouter() {
  Router router;
  const auto nothing = [](const HttpRequest&, HttpResponder&) {};
  router.Add("GET", "/v1/sessions/{id}", kPlainErrors, nothing);
  router.Add("POST", "/v1/sessions/{id}/fork", kPlainErrors, nothing);
  return router;
}

void TryPath(std::string_view text) {
  static const Router& router = *new Router(MakeRouter());
  std::vector<std::string> segments;
  if (!SplitPath(text, &segments)) return;
  std::string again;
  for (const std::string& segment : segments) {
    StrAppend(&again, "/", PercentEncode(segment));
    WEFT_CHECK(segment.find('\0') == segment.npos, "a NUL in a name");
  }
  std::vector<std::string> same;
  WEFT_CHECK(SplitPath(again, &same) && same == segments, "a path changes when written again");
  const Router::Match match = router.Find("GET", segments);
  if (match.route != nullptr) {
    WEFT_CHECK(match.arguments.size() == 1 && match.arguments[0] == segments[2],
               "a placeholder stands for something else");
  }
}

void TryGuard(std::string_view text) {
  static const HttpGuard& guard = *new HttpGuard();
  HttpRequest head;
  head.method = "POST";
  head.headers = {{"Host", std::string(text)}};
  const bool knows_host = !guard.Refusal(head, /*is_public=*/false).has_value();
  WEFT_CHECK(!knows_host || text.empty() || IsLoopbackHost(text), "a foreign host is let in");
  head.headers = {{"Host", "localhost"}, {"Origin", std::string(text)}};
  if (guard.Refusal(head, /*is_public=*/false).has_value()) return;
  const size_t host = text.find("://") + 3;
  WEFT_CHECK(text.size() <= host + std::string_view("localhost:443").size(),
             "a foreign origin is let in");
}

}  // namespace
}  // namespace weft::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  weft::serve::TryPath(text);
  weft::serve::TryGuard(text);
  const auto keys = weft::serve::ApiKeys::Parse(text);
  if (keys.ok()) WEFT_CHECK(!keys->Find("").has_value(), "the empty key is let in");
  return 0;
}
