// OpenAI's Responses API in its stateless form: POST /v1/responses and
// /v1/responses/input_tokens. Nothing is kept: the client sends the whole conversation.
#ifndef WEFT_SERVE_API_RESPONSES_H_
#define WEFT_SERVE_API_RESPONSES_H_

#include "serve/host.h"
#include "serve/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterResponsesApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_RESPONSES_H_
