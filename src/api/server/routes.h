// The server's own status: /health, /metrics, /v1/models, /props, /slots.
#ifndef WEFT_API_SERVER_ROUTES_H_
#define WEFT_API_SERVER_ROUTES_H_

#include <functional>
#include <string>

#include "host/host.h"
#include "http/router.h"

namespace weft::serve {

// What the operator allows to be seen; the rest is answered with 501.
struct ServerApiOptions {
  bool metrics = true;
  bool slots = true;
  // How much of the model is loaded, for /health; null: not told. Any thread.
  std::function<int()> loaded_percent = nullptr;
};

// `host` outlives the router.
void RegisterServerApi(Router& router, Host& host, const ServerApiOptions& options = {});

}  // namespace weft::serve

#endif  // WEFT_API_SERVER_ROUTES_H_
