// The page's conversations, for every browser with the same API key:
//
//   GET    /v1/page/conversations              ids and versions; If-None-Match gives 304
//   GET    /v1/page/conversations/{id}         {"id", "version", "conversation"}
//   PUT    /v1/page/conversations/{id}?version=N   replaces version N (0: it is new), else 409
//   DELETE /v1/page/conversations/{id}
//   GET    /v1/page/sessions/{id}              the text of a session, whoever made it
//
// They are in the state directory. Without one, the list says {"kept": false}, the browser keeps
// them itself, and the others answer 501.
#ifndef WEFT_DOORS_API_PAGE_CONVERSATION_ROUTES_H_
#define WEFT_DOORS_API_PAGE_CONVERSATION_ROUTES_H_

#include <optional>
#include <string>

#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// `host` outlives the router. `folder`: where they are kept, which needs no model then; empty for
// nowhere; unset for the engine's state directory.
void RegisterConversationsApi(Router& router, Host& host,
                              std::optional<std::string> folder = std::nullopt);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_PAGE_CONVERSATION_ROUTES_H_
