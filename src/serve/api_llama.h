// llama-server's own routes: /completion (and /completions), /tokenize, /detokenize,
// /apply-template.
#ifndef WEFT_SERVE_API_LLAMA_H_
#define WEFT_SERVE_API_LLAMA_H_

#include "serve/host.h"
#include "serve/http.h"
#include "serve/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterLlamaApi(Router& router, Host& host);

// The handlers of /completion and /infill, which RegisterLlamaApi registers.
void HandleLlamaCompletion(Host& host, const HttpRequest& request, HttpResponder& responder);
void HandleLlamaInfill(Host& host, const HttpRequest& request, HttpResponder& responder);

}  // namespace weft::serve

#endif  // WEFT_SERVE_API_LLAMA_H_
