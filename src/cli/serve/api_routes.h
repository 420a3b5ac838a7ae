// The routes of all APIs, for one model.
#ifndef WEFT_CLI_SERVE_API_ROUTES_H_
#define WEFT_CLI_SERVE_API_ROUTES_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/serve/serve_flags.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/page/channel.h"
#include "doors/host/host.h"
#include "doors/http/router.h"

namespace weft::cli {

// What the routers of a server with several models share.
struct ApiParts {
  std::shared_ptr<serve::Channels> channels;
  // Where the page's conversations are kept; unset: in the engine's state directory. Then neither
  // they nor the channels belong to a model.
  std::optional<std::string> conversations = std::nullopt;
  std::function<int()> loaded_percent = nullptr;
  serve::OllamaPull pull = {};
};

// `flags` and `host` outlive the router.
void RegisterApis(const ServeFlags& flags, const ApiParts& parts, serve::Host& host,
                  serve::Router& router);

// The models on this machine, of which that at `served_path` is served.
void RegisterModelsAtHand(const ServeFlags& flags, const std::string& served_path,
                          serve::Router& router);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_API_ROUTES_H_
