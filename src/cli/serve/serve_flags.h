// The flags of `weft serve`, and the options that follow from them.
#ifndef WEFT_CLI_SERVE_SERVE_FLAGS_H_
#define WEFT_CLI_SERVE_SERVE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/door_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/ollama_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "host/host.h"
#include "http/server.h"
#include "sampling/sampling_parameters.h"
#include "weft/engine.h"

namespace weft::cli {

struct ServeFlags {
  ModelFlags model;
  DoorFlags door;
  SamplingFlags sampling;
  ReplyFlags reply;
  bool strict_model_name = false;
  std::string tool_calls = "lenient";
  bool prompt_embeds = false;
  bool free_tool_calls = false;
  std::string restore_reasoning = "on";
  std::string on_repeated_call = "off";
  std::string host = "127.0.0.1";
  int port = 8080;
  int grpc_port = -1;     // -1: no gRPC
  std::string grpc_host;  // empty: host
  bool grpc_open = false;
  OllamaFlags ollama;
  std::string state_dir;
  bool durable = false;
  std::string slot_save_path;
  std::string memory = "auto";
  std::string state_disk = "auto";
  int max_running = 32;
  int max_queue = 256;
  int max_sessions = 4096;
  std::vector<std::string> aliases;
  int64_t n_predict = -1;
  std::string template_file;
  std::string builtin_template;
  int64_t session_ttl_s = 0;  // 0: sessions are kept
  int drain_seconds = 30;
  int sse_ping_seconds = 10;
  bool share_prefixes = false;
  int step_ms = EngineOptions().step_ms;
  int64_t checkpoint_tokens = 0;
  int checkpoint_percent = 50;
};

void AddServeFlags(CLI::App* app, ServeFlags* flags);

// Time for saving named sessions when the server ends.
std::chrono::milliseconds SaveGrace(const ServeFlags& flags);
StatusOr<EngineOptions> ServeEngineOptions(const ServeFlags& flags);
serve::HttpServerOptions ServeHttpOptions(const ServeFlags& flags);
// What requests that do not say otherwise get; `of_model`: what the model recommends.
serve::RequestDefaults ServeDefaults(const ServeFlags& flags, const SamplingAdvice& of_model);
// The chat template to use instead of the model's own; empty: none.
StatusOr<std::string> ServeTemplate(const ServeFlags& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_SERVE_SERVE_FLAGS_H_
