// llama-server's own routes: /completion (and /completions), /tokenize, /detokenize,
// /apply-template, /embedding, /rerank, /lora-adapters.
#ifndef WEFT_DOORS_API_LLAMA_ROUTES_H_
#define WEFT_DOORS_API_LLAMA_ROUTES_H_

#include "doors/host/host.h"
#include "doors/http/http.h"
#include "doors/http/router.h"

namespace weft::serve {

// `host` outlives the router.
void RegisterLlamaApi(Router& router, Host& host);

// /lora-adapters; registered by RegisterLlamaApi.
void RegisterAdapterRoutes(Router& router, Host& host);
// The handlers of /completion, /infill, /embedding and /rerank, registered by RegisterLlamaApi.
Task<void> HandleLlamaCompletion(Host& host, const HttpRequest& request, HttpResponder& responder);
Task<void> HandleLlamaInfill(Host& host, const HttpRequest& request, HttpResponder& responder);
Task<void> HandleLlamaEmbedding(Host& host, const HttpRequest& request, HttpResponder& responder);
Task<void> HandleRerank(Host& host, const HttpRequest& request, HttpResponder& responder);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_LLAMA_ROUTES_H_
