// Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.
#ifndef WEFT_SERVE_API_ANTHROPIC_H_
#define WEFT_SERVE_API_ANTHROPIC_H_

#include "serve/host.h"
#include "serve/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterAnthropicApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_ANTHROPIC_H_
