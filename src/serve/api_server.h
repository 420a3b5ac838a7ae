// What a server tells of itself: /health, /metrics, /v1/models, /props, /slots.
#ifndef WEFT_SERVE_API_SERVER_H_
#define WEFT_SERVE_API_SERVER_H_

#include "serve/host.h"
#include "serve/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterServerApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_SERVER_H_
