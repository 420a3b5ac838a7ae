// weft serve: serves the model over HTTP, for existing clients.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "cli/commands/command.h"
#include "cli/flags/default_model.h"
#include "cli/flags/door_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/ollama_flags.h"
#include "cli/flags/picture_flags.h"
#include "cli/serve/announcement.h"
#include "cli/serve/api_routes.h"
#include "cli/serve/drain.h"
#include "cli/serve/fleet_models.h"
#include "cli/serve/fleet_server.h"
#include "cli/serve/grpc_door.h"
#include "cli/serve/kv_events_door.h"
#include "cli/serve/picture_fetcher.h"
#include "cli/serve/serve_flags.h"
#include "cli/serve/shared_store.h"
#include "cli/serve/signals.h"
#include "cli/serve/terminal_face.h"
#include "doors/api/front_door.h"
#include "doors/api/page/channel.h"
#include "doors/api/server/drain_routes.h"
#include "doors/grpc/grpc_server.h"
#include "doors/host/api_keys.h"
#include "doors/host/model_host.h"
#include "doors/host/prompt_log.h"
#include "doors/http/server.h"
#include "engine/loading/box_model.h"
#include "engine/state/state_directory.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

// Time for the log's reader to read its last lines.
constexpr milliseconds kLogGrace{1000};
// Interval for checking long prompts to report, and sessions idle for longer than --session-ttl.
constexpr int kLookMs = 1000;

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
                 " format; loaded ", host.model().loading()));
}

void TellLongPrompts(serve::Host* host, serve::PromptLog* log) {
  if (host->phase() == serve::Phase::kFailed) return;
  log->Look(host->engine().Turns(), NowMicros());
}

// Logs once that the model's file has changed and the server can no longer answer.
void TellFailure(const serve::Host& host, bool* told) {
  if (*told || host.phase() != serve::Phase::kFailed) return;
  *told = true;
  LogLine(StrCat("the server cannot answer any more: ", host.phase_reason()));
}

void CloseExpiredSessions(const ServeFlags& flags, serve::Host* host) {
  if (flags.server.session_ttl_s == 0 || host->phase() != serve::Phase::kReady) return;
  const auto closed =
      host->engine().CloseIdle(std::nullopt, std::chrono::seconds(flags.server.session_ttl_s));
  if (closed.ok() && *closed > 0) {
    LogLine(
        StrCat("closed ", *closed, " sessions not used for ", flags.server.session_ttl_s, " s"));
  }
}

// Every connection is a descriptor; shells allow fewer by default than the system.
void AllowManyDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// How much of the model is loaded, in percent: written by the loading thread, told by /health.
using LoadedPercent = std::atomic<int>;

void RegisterRoutes(const ServeFlags& flags, const std::string& model_path,
                    const serve::ChannelLimits& channels, const LoadedPercent& loaded,
                    serve::Host& host, serve::Router& router) {
  RegisterModelsAtHand(flags, model_path, router);
  serve::RegisterDrainApi(router, host.drain_switch(), serve::OnlyHost(host));
  RegisterApis(flags,
               {.channels = serve::NewChannels(channels),
                .loaded_percent = [&loaded] { return loaded.load(); },
                .pull = PullForOllama(flags.model.models_folder, flags.server.pull_bytes)},
               host, router);
}

// Everything open while the server runs.
struct OpenServer {
  const ServeFlags& flags;
  const FlaggedModel& model;
  int64_t start_us;
  std::string store_line;  // of the log; empty: there is no shared store
  serve::ApiKeys* keys;
  serve::ApiKeys* metrics_keys;
  serve::ModelHost* host;
  serve::HttpServer* http;
  std::unique_ptr<serve::GrpcServer> grpc = nullptr;
  std::unique_ptr<serve::KvPublisher> kv_events = nullptr;
  std::optional<Announcement> entry = std::nullopt;
  std::optional<TerminalFace> face = std::nullopt;  // on a terminal
  serve::PromptLog prompt_log{LogLine};
  bool told_failure = false;
};

// What the log says of a ready server where no person is looking.
void LogIntroduction(const OpenServer& open) {
  WarnWhenOpenToAll(open.flags);
  LogReady(*open.host, open.start_us);
  LogSampling(open.flags.sampling.said, open.model);
}

// Once the model is loaded.
Status Announce(OpenServer* open) {
  const ServeFlags& flags = open->flags;
  serve::ModelHost& host = *open->host;
  const int64_t row_width = flags.server.takes_prompt_embeds ? host.model().row_width() : 0;
  open->http->SetMaxBodyBytes(
      MaxBodyBytes(flags.server, host.model().context_tokens(), row_width, host.answerer().sees()));
  if (!flags.server.grpc_ports.empty()) {
    serve::GrpcServerOptions options = GrpcOptions(flags, *open->metrics_keys);
    WEFT_ASSIGN_OR_RETURN(const GrpcPort port, ParseGrpcPort(flags.server.grpc_ports[0]));
    options.port = port.port;
    WEFT_ASSIGN_OR_RETURN(open->grpc, serve::GrpcServer::Start(&host, open->keys, options));
  }
  const std::string address = StrCat(flags.server.host, ":", open->http->port());
  WEFT_ASSIGN_OR_RETURN(open->kv_events, StartKvEvents(flags.server, *open->keys, address, &host));
  open->entry.emplace(host, HttpAddress(flags.server.host, open->http->port()));
  if (open->http->second_port() != 0) {
    std::fprintf(stderr, "listening on http://127.0.0.1:%d for clients of Ollama\n",
                 open->http->second_port());
  }
  RememberModel(flags.model);
  if (!open->store_line.empty()) LogLine(open->store_line);
  if (open->face) {
    open->face->Introduce(host, {flags.server.host, open->http->port()}, open->keys->size());
  } else {
    LogIntroduction(*open);
  }
  if (open->model.file->path() == kBoxModelName) {
    LogLine(
        "the built-in model is a toy that shows how Weft works; 'weft serve smollm2' serves a "
        "small real one");
  }
  return OkStatus();
}

void LookAround(OpenServer* open) {
  TellFailure(*open->host, &open->told_failure);
  TellLongPrompts(open->host, &open->prompt_log);
  CloseExpiredSessions(open->flags, open->host);
  serve::ParkWhileDrained(*open->host->drain_switch(), serve::OnlyHost(*open->host));
  if (open->entry) open->entry->Update();
  if (open->face && open->host->phase() == serve::Phase::kReady) {
    open->face->Update(open->host->engine().Stats());
  }
}

// Returns when a signal ends the server, or when loading has failed.
Status RunUntilEnd(const LoadOutcome& outcome, ServeSignals* signals, OpenServer* open) {
  while (true) {
    const ServeSignals::Cause cause = signals->Wait(kLookMs);
    if (cause == ServeSignals::Cause::kEnd) break;
    if (cause == ServeSignals::Cause::kTerminalGone) break;
    if (cause == ServeSignals::Cause::kReload) {
      ReloadKeys(open->keys, open->metrics_keys);
      if (open->kv_events) FollowKeys(open->flags.server, *open->keys, open->kv_events.get());
      continue;
    }
    if (!outcome.ended()) continue;
    if (cause == ServeSignals::Cause::kTimeout) {
      LookAround(open);
      continue;
    }
    WEFT_RETURN_IF_ERROR(outcome.status());
    WEFT_RETURN_IF_ERROR(Announce(open));
  }
  if (!outcome.ended()) {
    // Loading cannot be interrupted, and there is nothing to lose yet.
    LogLine("ended while loading");
    (void)FlushLog(kLogGrace);
    std::fflush(nullptr);
    _exit(0);
  }
  return OkStatus();
}

Status Drain(ServeSignals* signals, OpenServer* open) {
  serve::ModelHost* const host = open->host;
  serve::GrpcServer* const grpc = open->grpc.get();
  open->face.reset();
  if (grpc != nullptr) grpc->BeginDrain();
  const Drained drained = DrainTurns(
      open->flags, signals, [host](milliseconds grace) { return host->Drain(grace); },
      [&] { TellLongPrompts(host, &open->prompt_log); });
  open->kv_events.reset();
  if (grpc != nullptr) grpc->Shutdown(drained.send_grace);
  open->http->Shutdown(drained.send_grace);
  LogLine("shut down");
  return drained.status;
}

// Where conversations are kept: if no flag says it, at a terminal in the user's own folder, like
// those of weft chat.
std::string StateDir(const std::string& said) {
  if (said == "none") return "";
  const std::string folder = StateFolder();
  if (!said.empty() || !HasTerminalFace() || folder.empty()) return said;
  std::string path = StrCat(folder, "/serve");
  const Status status = StateDirectory::Open(path).status();
  if (status.ok()) return path;
  LogLine(StrCat("conversations are not saved: ", Printable(Message(status), 300)));
  return "";
}

Status Serve(const ServeFlags& flags) {
  const int64_t start_us = NowMicros();
  if (flags.server.grpc_open)
    WEFT_RETURN_IF_ERROR(serve::CheckGrpcOpen(GrpcOptions(flags, {}).host));
  AllowManyDescriptors();
  WEFT_ASSIGN_OR_RETURN(serve::FrontDoor::Options door_options, DoorOptions(flags.server));
  if (flags.server.fetches_pictures) {
    door_options.pictures = std::make_shared<serve::PictureFetcher>(FetchPicture);
  }
  serve::ApiKeys keys = door_options.keys, metrics_keys = door_options.metrics_keys;
  WEFT_ASSIGN_OR_RETURN(EngineOptions engine_options, ServeEngineOptions(flags));
  engine_options.max_sessions_per_domain = SessionsPerKey(flags.server, keys);
  WEFT_ASSIGN_OR_RETURN(engine_options.share_weights, ShareWeights(flags.server, keys));
  WEFT_RETURN_IF_ERROR(CheckKvEvents(flags.server, keys));
  if (ServesSeveral(flags)) {
    return ServeFleet(flags, engine_options,
                      {std::move(door_options), &keys, &metrics_keys, start_us});
  }
  WEFT_RETURN_IF_ERROR(CheckGrpcOfOne(flags));
  WEFT_ASSIGN_OR_RETURN(SharedStore store, OpenSharedStore(flags.server));
  engine_options.shared = store.options;
  WEFT_ASSIGN_OR_RETURN(std::string template_source, ServeTemplate(flags));
  // Before anything announces the server.
  WEFT_ASSIGN_OR_RETURN(const FlaggedModel model, OpenFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto signals, ServeSignals::Create());

  LoadOutcome outcome;
  LoadedPercent loaded_percent = 0;
  const auto tell_loaded = [&](double fraction) {
    loaded_percent = static_cast<int>(std::lround(fraction * 100));
  };
  serve::ModelHost host(
      {.load = [&] { return LoadFlaggedModel(flags.model, model.file, tell_loaded); },
       .load_draft = [&](const Model& of) { return LoadFlaggedDraft(flags.model, of); },
       .load_encoder = [&](const Model& of) { return LoadFlaggedEncoder(flags.model, of); },
       .engine = engine_options,
       .template_source = std::move(template_source),
       .model_id = flags.server.aliases.empty() ? model.name : flags.server.aliases[0],
       .defaults = ServeDefaults(flags, model.advice),
       .loaded =
           [&](const Status& status) {
             outcome.Set(status);
             signals->Tell();
           }});
  serve::Router router;
  RegisterRoutes(flags, model.file->path(), ChannelsPerKey(keys), loaded_percent, host, router);
  serve::FrontDoor door(std::move(door_options), &router, &host);
  WEFT_ASSIGN_OR_RETURN(const auto http,
                        serve::HttpServer::Start(ServeHttpOptions(flags), door.Hooks()));
  host.StartLoading();
  OpenServer open{.flags = flags,
                  .model = model,
                  .start_us = start_us,
                  .store_line = std::move(store.line),
                  .keys = &keys,
                  .metrics_keys = &metrics_keys,
                  .host = &host,
                  .http = http.get()};
  if (HasTerminalFace() && !flags.server.full_log) open.face.emplace();
  WEFT_RETURN_IF_ERROR(RunUntilEnd(outcome, signals.get(), &open));
  return Drain(signals.get(), &open);
}

}  // namespace

CommandBody MakeServeCommand(CLI::App* app) {
  auto flags = std::make_shared<ServeFlags>();
  AddServeFlags(app, flags.get());
  app->footer(
      "\nSpeaks OpenAI's chat completions, completions and responses, Anthropic's messages,\n"
      "Ollama's API and llama-server's own routes. GET /health answers 200 once the model is\n"
      "ready, GET /metrics has metrics for Prometheus, /v1/sessions (or 'weft sessions')\n"
      "manages named sessions. Open the address in a browser for a page with conversations\nand a "
      "view of the engine. SIGTERM, SIGINT and closing the terminal let\n"
      "running turns finish and save named sessions in --state-dir; SIGHUP reloads the\n"
      "--api-key-file.\n\n"
      "Examples:\n"
      "  weft serve -m model.gguf --state-dir ~/.weft\n"
      "  weft serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt --max-running 64\n"
      "  weft serve -m model.gguf --ollama --alias llama3.2    # programs that look for Ollama\n"
      "  weft serve -m model.gguf --state-dir ~/.weft --store s3://talks/weft \\\n"
      "       --worker-url http://10.0.0.5:8080                # sessions may move\n"
      "  weft serve -m qwen3-4b -m smollm2 --memory 12G        # several: by a request's "
      "\"model\"\n"
      "  weft serve --models models.toml --idle-unload 30m     # their names, aliases and flags\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",\n"
      "       \"content\": \"Hello\"}]}'");
  return [flags] {
    flags->server.state_dir = StateDir(flags->server.state_dir);
    const Status status = Serve(*flags);
    (void)FlushLog(kLogGrace);
    return status;
  };
}

}  // namespace weft::cli
