// Support for Ollama's clients in `weft serve` besides the API: listening on Ollama's port, and
// pulling models by Ollama's names.
#ifndef WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_
#define WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "doors/api/ollama/routes.h"
#include "doors/host/server_options.h"
#include "doors/http/server.h"
#include "model/hub/net/download.h"

namespace weft::cli {

// Nothing if disabled, or if the server's own address opens that port already.
std::optional<serve::HttpServerOptions::Second> OllamaListener(const serve::ServerOptions& options);

// Blocks; any thread. Downloads into Weft's directories or the hub's; see hub::ModelSource. At most
// `max_bytes` in all.
serve::OllamaPull PullForOllama(std::string models_folder, int64_t max_bytes);

// The equivalent argument for `weft pull`: "qwen3:0.6b" is an Ollama model,
// "hf.co/owner/repo:QUANT" one of the hub. Clients cannot make this server contact other servers:
// INVALID_ARGUMENT.
StatusOr<std::string> FromOllamaName(std::string_view name);
// In Ollama's wording.
serve::OllamaPullProgress ToOllamaProgress(const hub::Progress& progress);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_
