// What `weft serve` does for clients of Ollama beside its API: the port where they look for it,
// and getting models by the names that they have for them.
#ifndef WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_
#define WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/ollama/routes.h"
#include "base/status.h"
#include "http/server.h"
#include "hub/download.h"

namespace weft::cli {

struct OllamaFlags {
  bool listen = false;
  int port = 11434;
};

void AddOllamaFlags(CLI::App* app, OllamaFlags* flags);
// Nothing where it is not wanted, or `host` and `port` open that port already.
std::optional<serve::HttpServerOptions::Second> OllamaListener(const OllamaFlags& flags,
                                                               const std::string& host, int port);

// Blocking; any thread. Loads into Weft's folders, or the hub's; see hub::ModelSource.
serve::OllamaPull PullForOllama(std::string models_folder);

// What `weft pull` would be told: "qwen3:0.6b" is a model of Ollama, "hf.co/owner/repo:QUANT" one
// of the hub. Other servers are not asked for whoever asks this one: INVALID_ARGUMENT.
StatusOr<std::string> FromOllamaName(std::string_view name);
// As Ollama words it.
serve::OllamaPullProgress ToOllamaProgress(const hub::Progress& progress);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_OLLAMA_FLAGS_H_
