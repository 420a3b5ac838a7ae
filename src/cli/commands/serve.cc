// weft serve: serves the model over HTTP, for existing clients.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/anthropic/routes.h"
#include "api/front_door.h"
#include "api/llama/routes.h"
#include "api/llama/slots.h"
#include "api/ollama/routes.h"
#include "api/openai/routes.h"
#include "api/page/channel.h"
#include "api/page/page.h"
#include "api/responses/routes.h"
#include "api/server/info.h"
#include "api/server/local_models.h"
#include "api/server/routes.h"
#include "api/sessions/routes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/mutex.h"
#include "chat/builtin_templates.h"
#include "cli/commands/command.h"
#include "cli/flags/bytes_flag.h"
#include "cli/flags/door_flags.h"
#include "cli/flags/duration_flag.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/ollama_flags.h"
#include "cli/flags/reply_flags.h"
#include "cli/flags/sampling_flags.h"
#include "cli/serve/announcement.h"
#include "cli/serve/models_at_hand.h"
#include "cli/serve/service_manager.h"
#include "cli/serve/signals.h"
#include "grpc/grpc_server.h"
#include "host/api_keys.h"
#include "host/model_host.h"
#include "host/prompt_log.h"
#include "http/server.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

// Time to send remaining output when everything is computed.
constexpr milliseconds kSendGrace{5000};
// Minimum time for saving named sessions, however little the turns had.
constexpr milliseconds kLeastSaveGrace{10'000};
// Time for the log's reader to read its last lines.
constexpr milliseconds kLogGrace{1000};
// Interval for checking long prompts to report, and sessions idle for longer than --session-ttl.
constexpr int kLookMs = 1000;

struct ServeFlags {
  ModelFlags model;
  DoorFlags door;
  SamplingFlags sampling;
  ReplyFlags reply;
  bool strict_model_name = false;
  std::string tool_calls = "lenient";
  bool free_tool_calls = false;
  std::string host = "127.0.0.1";
  int port = 8080;
  int grpc_port = -1;     // -1: no gRPC
  std::string grpc_host;  // empty: host
  bool grpc_open = false;
  OllamaFlags ollama;
  std::string state_dir;
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

// "auto" is 0; otherwise bytes, with K, M, G or T for powers of 1024.
StatusOr<int64_t> ParseByteFlag(std::string_view flag, const std::string& text) {
  if (text == "auto") return 0;
  int64_t bytes = 0;
  if (!ParseBytes(text, &bytes)) {
    return InvalidArgument(flag, " ", Printable(text),
                           " is not a number of bytes; write 800M, 16G or auto");
  }
  return bytes;
}

StatusOr<std::string> TemplateSource(const ServeFlags& flags) {
  if (!flags.builtin_template.empty()) {
    WEFT_ASSIGN_OR_RETURN(const std::string_view source,
                          FindBuiltinTemplate(flags.builtin_template));
    return std::string(source);
  }
  if (flags.template_file.empty()) return std::string();
  WEFT_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.template_file, kMaxTextBytes));
  if (text.empty()) return InvalidArgument(Printable(flags.template_file, 200), " is empty");
  return text;
}

// Saving may take as long as the turns before it, and at least some seconds.
milliseconds SaveGrace(const ServeFlags& flags) {
  return std::max<milliseconds>(std::chrono::seconds(flags.drain_seconds), kLeastSaveGrace);
}

StatusOr<EngineOptions> ServeEngineOptions(const ServeFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(options.memory_bytes, ParseByteFlag("--memory", flags.memory));
  if (flags.state_disk == "0") {
    options.state_disk_bytes = -1;
  } else {
    WEFT_ASSIGN_OR_RETURN(options.state_disk_bytes,
                          ParseByteFlag("--state-disk", flags.state_disk));
  }
  options.save_grace = SaveGrace(flags);
  options.on_notice = [](const std::string& text) { LogLine(text); };
  options.max_running = flags.max_running;
  options.max_queued = flags.max_queue;
  options.max_sessions = flags.max_sessions;
  options.state_dir = flags.state_dir;
  options.share_prefixes_across_domains = flags.share_prefixes;
  options.step_ms = flags.step_ms;
  options.checkpoint_tokens = flags.checkpoint_tokens;
  options.checkpoint_share = flags.checkpoint_percent / 100.0;
  return options;
}

serve::HttpServerOptions ServerOptions(const ServeFlags& flags) {
  serve::HttpServerOptions options;
  options.host = flags.host;
  options.port = flags.port;
  options.second = OllamaListener(flags.ollama, flags.host, flags.port);
  SetLimits(flags.door, &options);
  return options;
}

serve::GrpcServerOptions GrpcOptions(const ServeFlags& flags) {
  serve::GrpcServerOptions options;
  options.host = flags.grpc_host.empty() ? flags.host : flags.grpc_host;
  options.port = flags.grpc_port;
  options.open = flags.grpc_open;
  options.log_text = flags.door.log_text;
  return options;
}

// The result of loading, for the thread that waits for it.
class LoadOutcome {
 public:
  void Set(Status status) {
    MutexLock lock(&mutex_);
    ended_ = true;
    status_ = std::move(status);
  }
  bool ended() const {
    MutexLock lock(&mutex_);
    return ended_;
  }
  Status status() const {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  bool ended_ WEFT_GUARDED_BY(mutex_) = false;
  Status status_ WEFT_GUARDED_BY(mutex_);
};

void LogReady(serve::Host& host, int64_t start_us) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.1f",
                static_cast<double>(NowMicros() - start_us) / 1e6);
  LogLine(StrCat("ready after ", seconds, " s: ", Printable(host.model_id(), 200), ", context of ",
                 host.model().context_tokens(), " tokens, replies in ", host.chat().reply_format(),
                 " format"));
}

void TellLongPrompts(serve::Host* host, serve::PromptLog* log) {
  if (host->phase() == serve::Phase::kFailed) return;
  log->Look(host->engine().Turns(), NowMicros());
}

// Logs once that the model's file has changed and the server can no longer answer.
void TellFailure(const serve::Host& host, bool* told) {
  if (*told || host.phase() != serve::Phase::kFailed) return;
  *told = true;
  LogLine(StrCat("nothing more can be computed: ", host.phase_reason()));
}

// Lets running turns finish; cuts them off after a second signal.
Status Drain(const ServeFlags& flags, serve::ModelHost* host, serve::HttpServer* server,
             serve::GrpcServer* grpc, serve::PromptLog* prompt_log, ServeSignals* signals) {
  LogLine(StrCat("shutting down: running turns have ", flags.drain_seconds,
                 " s to finish; a second signal ends them at once"));
  // A service manager with a shorter timeout would kill us while saving.
  TellServiceManager(StrCat("STOPPING=1\nEXTEND_TIMEOUT_USEC=",
                            std::chrono::microseconds(std::chrono::seconds(flags.drain_seconds) +
                                                      SaveGrace(flags) + 2 * kSendGrace)
                                .count()));
  if (grpc != nullptr) grpc->BeginDrain();
  std::atomic<bool> drained{false};
  Status status;
  std::thread waiter([&] {
    status = host->Drain(std::chrono::seconds(flags.drain_seconds));
    drained = true;
    signals->Tell();
  });
  milliseconds send_grace = kSendGrace;
  while (!drained) {
    const ServeSignals::Cause cause = signals->Wait(kLookMs);
    if (cause == ServeSignals::Cause::kTimeout) TellLongPrompts(host, prompt_log);
    if (cause != ServeSignals::Cause::kEnd) continue;
    send_grace = milliseconds(0);
    (void)host->Drain(milliseconds(0));
  }
  waiter.join();
  if (grpc != nullptr) grpc->Shutdown(send_grace);
  server->Shutdown(send_grace);
  LogLine("shut down");
  return status;
}

void CloseExpiredSessions(const ServeFlags& flags, serve::Host* host) {
  if (flags.session_ttl_s == 0 || host->phase() != serve::Phase::kReady) return;
  const auto closed =
      host->engine().CloseIdle(std::nullopt, std::chrono::seconds(flags.session_ttl_s));
  if (closed.ok() && *closed > 0) {
    LogLine(StrCat("closed ", *closed, " sessions not used for ", flags.session_ttl_s, " s"));
  }
}

// Every connection is a descriptor; shells allow fewer by default than the system.
void AllowManyDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void WarnWhenOpenToAll(const ServeFlags& flags) {
  if (serve::IsLoopbackHost(flags.host) || !flags.door.api_key_file.empty()) return;
  LogLine(StrCat("anyone who can reach ", Printable(flags.host, 100),
                 " has access, because there is no --api-key-file"));
}

std::vector<std::string> FurtherNames(const ServeFlags& flags) {
  if (flags.aliases.empty()) return {};
  return {flags.aliases.begin() + 1, flags.aliases.end()};
}

serve::RequestDefaults Defaults(const ServeFlags& flags, const SamplingAdvice& of_model) {
  serve::RequestDefaults defaults{.sampling = SamplingWith(flags.sampling, of_model),
                                  .advice = AdviceWith(flags.sampling, of_model),
                                  .end_loops = flags.sampling.end_loops,
                                  .strict_model_name = flags.strict_model_name,
                                  .lenient_tool_calls = flags.tool_calls == "lenient",
                                  .hold_calls = !flags.free_tool_calls,
                                  .slots_are_sessions = !flags.slot_save_path.empty(),
                                  .ping_interval = std::chrono::seconds(flags.sse_ping_seconds),
                                  .max_tokens = flags.n_predict,
                                  .further_names = FurtherNames(flags)};
  SetReplyDefaults(flags.reply, &defaults);
  return defaults;
}

Status Serve(const ServeFlags& flags) {
  const int64_t start_us = NowMicros();
  if (flags.grpc_open) WEFT_RETURN_IF_ERROR(serve::CheckGrpcOpen(GrpcOptions(flags).host));
  AllowManyDescriptors();
  WEFT_ASSIGN_OR_RETURN(serve::FrontDoor::Options door_options,
                        DoorOptions(flags.door, flags.host));
  serve::ApiKeys keys = door_options.keys, metrics_keys = door_options.metrics_keys;
  WEFT_ASSIGN_OR_RETURN(EngineOptions engine_options, ServeEngineOptions(flags));
  const serve::ChannelLimits channels = ChannelsPerKey(keys);
  engine_options.max_sessions_per_domain = SessionsPerKey(flags.door, keys, flags.max_sessions);
  WEFT_ASSIGN_OR_RETURN(std::string template_source, TemplateSource(flags));
  // Before anything announces the server.
  WEFT_ASSIGN_OR_RETURN(const FlaggedModel model, OpenFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto signals, ServeSignals::Create());

  LoadOutcome outcome;
  serve::ModelHost host({.load = [&] { return LoadFlaggedModel(flags.model, model.file); },
                         .load_draft = [&] { return LoadFlaggedDraft(flags.model); },
                         .engine = engine_options,
                         .template_source = std::move(template_source),
                         .model_id = flags.aliases.empty() ? model.name : flags.aliases[0],
                         .defaults = Defaults(flags, model.advice),
                         .loaded =
                             [&](const Status& status) {
                               outcome.Set(status);
                               signals->Tell();
                             }});
  serve::Router router;
  serve::RegisterLocalModelsApi(router, [&flags, served = model.file->path()] {
    return ModelsAtHand(flags.model.models_folder, served, AddressFlags(flags.host, flags.port));
  });
  serve::RegisterServerApi(router, host,
                           {.metrics = flags.door.metrics == "on", .slots = !flags.door.no_slots});
  serve::RegisterSlotsApi(router, host, flags.slot_save_path);
  serve::RegisterInfoApi(router, host);
  serve::RegisterSessionsApi(router, host);
  serve::RegisterLlamaApi(router, host);
  serve::RegisterOpenAiApi(router, host);
  serve::RegisterAnthropicApi(router, host);
  serve::RegisterResponsesApi(router, host);
  serve::RegisterChannelApi(router, host, channels);
  if (!flags.door.no_ui) serve::RegisterPage(router);
  serve::RegisterOllamaApi(router, host, PullForOllama(flags.model.models_folder));
  serve::FrontDoor door(std::move(door_options), &router, &host);
  WEFT_ASSIGN_OR_RETURN(const auto server,
                        serve::HttpServer::Start(ServerOptions(flags), door.Hooks()));
  host.StartLoading();

  std::unique_ptr<serve::GrpcServer> grpc;
  std::optional<Announcement> entry;
  serve::PromptLog prompt_log(LogLine);
  bool told_failure = false;
  while (true) {
    const ServeSignals::Cause cause = signals->Wait(kLookMs);
    if (cause == ServeSignals::Cause::kEnd) break;
    if (cause == ServeSignals::Cause::kTerminalGone) break;
    if (cause == ServeSignals::Cause::kReload) {
      ReloadKeys(&keys, &metrics_keys);
      continue;
    }
    if (!outcome.ended()) continue;
    if (cause == ServeSignals::Cause::kTimeout) {
      TellFailure(host, &told_failure);
      TellLongPrompts(&host, &prompt_log);
      CloseExpiredSessions(flags, &host);
      if (entry) entry->Update();
      continue;
    }
    WEFT_RETURN_IF_ERROR(outcome.status());
    server->SetMaxBodyBytes(MaxBodyBytes(flags.door, host.model().context_tokens()));
    if (flags.grpc_port >= 0) {
      WEFT_ASSIGN_OR_RETURN(grpc, serve::GrpcServer::Start(&host, &keys, GrpcOptions(flags)));
    }
    entry.emplace(host, HttpAddress(flags.host, server->port()));
    if (server->second_port() != 0) {
      std::fprintf(stderr, "listening on http://127.0.0.1:%d for clients of Ollama\n",
                   server->second_port());
    }
    WarnWhenOpenToAll(flags);
    LogReady(host, start_us);
    LogSampling(flags.sampling.said, model);
  }
  if (!outcome.ended()) {
    // Loading cannot be interrupted, and there is nothing to lose yet.
    LogLine("ended while loading");
    (void)FlushLog(kLogGrace);
    std::fflush(nullptr);
    _exit(0);
  }
  return Drain(flags, &host, server.get(), grpc.get(), &prompt_log, signals.get());
}

void AddServeFlags(CLI::App* app, ServeFlags* flags) {
  AddModelFlag(app, &flags->model);
  AddOrBuiltInFlag(app, &flags->model);
  app->add_option("--host", flags->host, "Address to listen on; 0.0.0.0 means all addresses")
      ->capture_default_str();
  app->add_option("--port", flags->port, "Port to listen on (0: any free port)")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  auto* const grpc_port = app->add_option("--grpc-port", flags->grpc_port,
                                          "Port of the gRPC service for gateways, opened when the "
                                          "model is ready (0: any free port; default: none)")
                              ->check(CLI::Range(0, 65535));
  app->add_option("--grpc-host", flags->grpc_host,
                  "Address to listen on for gRPC (default: as --host)")
      ->needs(grpc_port);
  app->add_flag("--grpc-open", flags->grpc_open,
                "Require no key over gRPC, for local gateways that send none; only allowed if gRPC "
                "listens on 127.0.0.1 or another address that only this machine can reach")
      ->needs(grpc_port);
  AddOllamaFlags(app, &flags->ollama);
  app->add_option("--alias", flags->aliases,
                  "Name of the model for clients (default: its name for -m, or the one in the "
                  "file); may list further names, separated by commas")
      ->delimiter(',');
  app->add_option(
         "-n,--n-predict,--predict", flags->n_predict,
         "Tokens to generate if neither the request nor its API says (-1: until the model ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  app->add_option("--state-dir", flags->state_dir,
                  "Save named sessions in this directory, and restore them after a restart");
  app->add_option("--slot-save-path", flags->slot_save_path,
                  "Let clients of llama-server save, restore and erase slots, with files in this "
                  "directory; a request with an id_slot then belongs to that slot's session")
      ->check(CLI::ExistingDirectory);
  app->add_option("--memory", flags->memory,
                  "Memory for the state of all sessions, such as 800M or 16G (auto: half of the "
                  "free memory)")
      ->capture_default_str();
  app->add_option(
         "--state-disk", flags->state_disk,
         "Disk space for computed state in --state-dir, such as 2G, which saves recurring sessions "
         "and prompts from being recomputed after a restart; the least useful state is removed "
         "first (auto: the smaller of 10 GB and a tenth of the free space; 0: none)")
      ->capture_default_str();
  app->add_option("--max-running", flags->max_running, "Maximum number of turns that run together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--max-queue", flags->max_queue,
                  "Maximum number of waiting turns; further ones get 429")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app->add_option("--max-sessions", flags->max_sessions, "Maximum number of named sessions")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  AddDurationFlag(app, "--session-ttl", &flags->session_ttl_s,
                  "Delete sessions, including their files, that have not been used for this long, "
                  "such as 12h or 7d (default: never)");
  AddContextFlag(app, &flags->model);
  AddPoolingFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  // Defaults for requests that omit them.
  AddSamplingFlags(app, &flags->sampling);
  app->add_flag("--strict-model-name", flags->strict_model_name,
                "Refuse requests that name another model with 404; otherwise any name is accepted");
  app->add_option(
         "--tool-calls", flags->tool_calls,
         "Which replies count as tool calls: lenient also accepts JSON that names an offered tool, "
         "in a fence, in tags or bare; strict accepts only the model's own format")
      ->check(CLI::IsMember({"lenient", "strict"}))
      ->capture_default_str();
  app->add_flag("--free-tool-calls", flags->free_tool_calls,
                "Do not constrain calls; by default, a call begun in the model's own format is "
                "forced to be a call of an offered tool, with arguments that fit its schema");
  AddReplyFlags(app, &flags->reply);
  auto* const file = app->add_option("--template,--chat-template-file", flags->template_file,
                                     "A chat template (Jinja) to use instead of the model's own");
  app->add_option("--builtin,--chat-template", flags->builtin_template,
                  "A built-in chat template, such as chatml")
      ->excludes(file);
  app->add_option("--drain-seconds", flags->drain_seconds,
                  "Seconds for running turns to finish after SIGTERM; saving sessions may take as "
                  "long again, at least 10 s")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  app->add_option("--sse-ping-interval", flags->sse_ping_seconds,
                  "Seconds after which a silent stream sends a keep-alive, so that clients do not "
                  "give up during a long prompt (0: only at its beginning)")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  app->add_flag("--share-prefixes", flags->share_prefixes,
                "Share cached prefixes between API keys; response times may then reveal to one key "
                "what another has asked");
  app->add_option(
         "--step-ms", flags->step_ms,
         "How long work on a prompt may keep others waiting before it pauses, in milliseconds; "
         "decoding sessions wait no longer than this plus twice their own step")
      ->check(CLI::Range(1, 10000))
      ->type_name("MS")
      ->capture_default_str();
  app->add_option("--checkpoint-tokens", flags->checkpoint_tokens,
                  "Tokens between two checkpoints of models with recurrent state, which can only "
                  "resume at checkpoints (0: 256 to 1024, depending on their size)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 26))
      ->capture_default_str();
  app->add_option("--checkpoint-percent", flags->checkpoint_percent,
                  "Share of the sessions' memory for checkpoints (0: no checkpoints)")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  AddDoorFlags(app, &flags->door);
}

}  // namespace

CommandBody MakeServeCommand(CLI::App* app) {
  auto flags = std::make_shared<ServeFlags>();
  AddServeFlags(app, flags.get());
  app->footer(
      "\nSpeaks OpenAI's chat completions, completions and responses, Anthropic's messages,\n"
      "Ollama's API and llama-server's own routes. GET /health answers 200 once the model is\n"
      "ready, GET /metrics has metrics for Prometheus, /v1/sessions (or 'weft sessions')\n"
      "manages named conversations. The address itself serves a web page with conversations\n"
      "side by side and a view of the engine. SIGTERM, SIGINT and closing the terminal let\n"
      "running turns finish and save named sessions in --state-dir; SIGHUP reloads the\n"
      "--api-key-file.\n\n"
      "Examples:\n"
      "  weft serve -m model.gguf --state-dir ~/.weft\n"
      "  weft serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt --max-running 64\n"
      "  weft serve -m model.gguf --ollama --alias llama3.2    # programs that look for Ollama\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",\n"
      "       \"content\": \"Hello\"}]}'");
  return [flags] {
    const Status status = Serve(*flags);
    (void)FlushLog(kLogGrace);
    return status;
  };
}

}  // namespace weft::cli
