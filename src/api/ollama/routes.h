// Ollama's API: /api/chat, /api/generate, what its clients ask about the model, and getting
// another one.
#ifndef WEFT_API_OLLAMA_ROUTES_H_
#define WEFT_API_OLLAMA_ROUTES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "host/host.h"
#include "http/http.h"
#include "http/router.h"

namespace weft::serve {

// How far getting a model is.
struct OllamaPullProgress {
  std::string status;
  std::string digest;  // of the file that is loaded; empty: none is
  int64_t total_bytes = 0;
  int64_t completed_bytes = 0;
};

// Gets the model of that name, on the handler's thread; blocking. It is given up when `is_wanted`
// is false, which is asked often.
using OllamaPull = std::function<Status(const std::string& name,
                                        const std::function<void(const OllamaPullProgress&)>& tell,
                                        const std::function<bool()>& is_wanted)>;

// `host` outlives the router. Without `pull` no model can be got.
void RegisterOllamaApi(Router& router, Host& host, OllamaPull pull = {});

// Ollama says at / that it is there, and some clients look for that; browsers are to see the page.
// Who came in by the port that Ollama has, or wants JSON, and can do nothing with HTML is
// answered. False for everybody else, who is not.
bool AnsweredAsOllama(const HttpRequest& request, HttpResponder& responder);

// The handlers that RegisterOllamaApi registers, of what is about models.
void RegisterOllamaModels(Router& router, Host& host, OllamaPull pull);

// A time as Ollama writes it; micros since 1970.
std::string OllamaTime(int64_t wall_us);

}  // namespace weft::serve

#endif  // WEFT_API_OLLAMA_ROUTES_H_
