// The flags of `weft serve`, and the options that follow from them.
#ifndef WEFT_CLI_SERVE_SERVE_FLAGS_H_
#define WEFT_CLI_SERVE_SERVE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "doors/host/host.h"
#include "doors/host/server_options.h"
#include "doors/http/server.h"
#include "model/sampling/sampling_parameters.h"
#include "weft/engine.h"

namespace weft::cli {

struct ServeFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ReplyFlags reply;
  serve::ServerOptions server;
  std::vector<std::string> page_mcp;  // addresses of MCP servers
  // --- several models, see cli/serve/fleet_models.h ---
  std::vector<std::string> models;  // from each -m
  std::string models_file;
  int64_t idle_unload_s = -1;  // -1: never
};

void AddServeFlags(CLI::App* app, ServeFlags* flags);
// Those among them that may differ between the models of one server.
void AddFlagsOfEachModel(CLI::App* app, ServeFlags* flags);

// Time for saving named sessions when the server ends.
std::chrono::milliseconds SaveGrace(const ServeFlags& flags);
StatusOr<EngineOptions> ServeEngineOptions(const ServeFlags& flags);
serve::HttpServerOptions ServeHttpOptions(const ServeFlags& flags);
// Defaults for requests; `of_model`: the model's recommendations.
serve::RequestDefaults ServeDefaults(const ServeFlags& flags, const SamplingAdvice& of_model);
// The chat template to use instead of the model's own; empty: none.
StatusOr<std::string> ServeTemplate(const ServeFlags& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVE_FLAGS_H_
