// OpenAI's Responses API in its stateless form: POST /v1/responses and /v1/responses/input_tokens.
// Nothing is stored: the client sends the whole conversation.
#ifndef WEFT_DOORS_API_RESPONSES_ROUTES_H_
#define WEFT_DOORS_API_RESPONSES_ROUTES_H_

#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterResponsesApi(Router& router, Host& host);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_RESPONSES_ROUTES_H_
