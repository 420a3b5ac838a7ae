// The server's own status: /health, /metrics, /v1/models, /props, /slots.
#ifndef WEFT_DOORS_API_SERVER_ROUTES_H_
#define WEFT_DOORS_API_SERVER_ROUTES_H_

#include <functional>
#include <string>

#include "doors/host/host.h"
#include "doors/http/router.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// What the operator allows to be seen; the rest is answered with 501.
struct ServerApiOptions {
  bool metrics = true;
  bool slots = true;
  // How much of the model is loaded, for /health; null: not told. Any thread.
  std::function<int()> loaded_percent = nullptr;
};

// One object with everything that clients of OpenAI, llama-server, vLLM and Anthropic look for.
// `owner`: some clients expect llama-server's value, others use it to tell us apart. REQUIRES: the
// host is ready.
nlohmann::ordered_json ModelObject(Host& host, const char* owner);
// One for each adapter, under the name by which requests choose it. REQUIRES: the same.
nlohmann::ordered_json AdapterObjects(Host& host, const char* owner);
// In the form of Ollama's lists.
nlohmann::ordered_json ModelEntry(Host& host);
// All metrics of its model.
MetricFamilies OperatorMetrics(Host& host);
// The owner that the request's clients expect.
const char* OwnerFor(const HttpRequest& request);

// `host` outlives the router.
void RegisterServerApi(Router& router, Host& host, const ServerApiOptions& options = {});

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_SERVER_ROUTES_H_
