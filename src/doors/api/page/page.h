// The web page at /: the files built in web/, embedded in the binary.
//
// They are the same for everybody and contain no secrets, so they need no API key: the page's own
// API requests carry the key that the user entered. Its content policy allows requests to this
// server alone, and to the MCP servers that the operator names. Any thread.
#ifndef WEFT_DOORS_API_PAGE_PAGE_H_
#define WEFT_DOORS_API_PAGE_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "doors/http/router.h"

namespace weft::serve {

struct PageOptions {
  // MCP servers that the page may ask. REQUIRES: OriginOf is OK for each.
  std::vector<std::string> mcp_urls = {};
};

// "https://tools.example:8443/mcp" -> "https://tools.example:8443". INVALID_ARGUMENT for anything
// that is no such address: no other text may get into the content policy.
StatusOr<std::string> OriginOf(std::string_view url);

// GET / and /page/{file}, GET /v1/page/mcp. Requests to / from Ollama's clients get Ollama's
// answer.
void RegisterPage(Router& router, const PageOptions& options = {});

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_PAGE_H_
