// Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.
#ifndef WEFT_DOORS_API_ANTHROPIC_ROUTES_H_
#define WEFT_DOORS_API_ANTHROPIC_ROUTES_H_

#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterAnthropicApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_ANTHROPIC_ROUTES_H_
