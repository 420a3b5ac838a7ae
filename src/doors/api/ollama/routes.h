// Ollama's API: /api/chat, /api/generate, queries about the model, and pulling another one.
#ifndef WEFT_DOORS_API_OLLAMA_ROUTES_H_
#define WEFT_DOORS_API_OLLAMA_ROUTES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "async/task.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "doors/host/model_fleet.h"
#include "doors/http/http.h"
#include "doors/http/router.h"

namespace weft::serve {

// Progress of pulling a model.
struct OllamaPullProgress {
  std::string status;
  std::string digest;  // the file being downloaded; empty: none
  int64_t total_bytes = 0;
  int64_t completed_bytes = 0;
};

// Pulls the named model; blocks its thread, one of a few for this. Gives up when `is_wanted`, which
// is called often, returns false.
using OllamaPull = std::function<Status(const std::string& name,
                                        const std::function<void(const OllamaPullProgress&)>& tell,
                                        const std::function<bool()>& is_wanted)>;

// `host` outlives the router. Without `pull`, models cannot be pulled.
void RegisterOllamaApi(Router& router, Host& host, OllamaPull pull = {});

// /api/tags and /api/ps of a server that has several models. Register before RegisterOllamaApi,
// whose routes tell of one. `fleet` outlives the router.
void RegisterOllamaFleet(Router& router, ModelFleet& fleet);

// At "/", Ollama reports that it is running, and some clients check for that; browsers should see
// the page instead. Answers requests that came through Ollama's port, or that want JSON and cannot
// use HTML. False for all others, which are not answered.
bool AnsweredAsOllama(const HttpRequest& request, HttpResponder& responder);

// Registers the routes about models; called by RegisterOllamaApi.
void RegisterOllamaModels(Router& router, Host& host, OllamaPull pull);

// The handler of /api/embed and of /api/embeddings, its former form.
Task<void> HandleOllamaEmbed(Host& host, const HttpRequest& request, HttpResponder& responder);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OLLAMA_ROUTES_H_
