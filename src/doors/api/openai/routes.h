// OpenAI's APIs: chat completions, the older completions, embeddings, and llama-server's extensions
// under the same paths. docs/reference/fields.txt lists the parameters.
#ifndef WEFT_DOORS_API_OPENAI_ROUTES_H_
#define WEFT_DOORS_API_OPENAI_ROUTES_H_

#include "async/task.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "doors/http/router.h"

namespace weft::serve {

// POST /v1/chat/completions, /v1/completions, /v1/embeddings,
// /v1/chat/completions/input_tokens, /v1/chat/completions/render, /v1/completions/render. `host`
// outlives the router.
void RegisterOpenAiApi(Router& router, Host& host);

// The handlers, for RegisterOpenAiApi.
Task<void> HandleChatCompletions(Host& host, const HttpRequest& request, HttpResponder& responder);
void HandleChatInputTokens(Host& host, const HttpRequest& request, HttpResponder& responder);
// vLLM's: the prompt's tokens and the sampling parameters, as POST .../render.
void HandleChatRender(Host& host, const HttpRequest& request, HttpResponder& responder);
void HandleCompletionsRender(Host& host, const HttpRequest& request, HttpResponder& responder);
// Also of llama-server's "/embeddings", where the body is OpenAI's.
Task<void> HandleEmbeddings(Host& host, const HttpRequest& request, HttpResponder& responder);
Task<void> HandleCompletions(Host& host, const HttpRequest& request, HttpResponder& responder);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OPENAI_ROUTES_H_
