#include "cli/serve/fleet_server.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/system.h"
#include "cli/flags/door_flags.h"
#include "cli/serve/announcement.h"
#include "cli/serve/drain.h"
#include "cli/serve/fleet_actions.h"
#include "cli/serve/fleet_models.h"
#include "cli/serve/grpc_door.h"
#include "cli/serve/signals.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/server/drain_routes.h"
#include "doors/api/server/fleet_routes.h"
#include "doors/api/sessions/routes.h"
#include "doors/host/fleet_host.h"
#include "doors/host/model_fleet.h"
#include "doors/host/prompt_log.h"
#include "doors/http/server.h"
#include "engine/state/state_directory.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;

constexpr int kLookMs = 1000;
// While the first models are loaded.
constexpr int kStartLookMs = 50;

// Where models leave their sessions when they go: --state-dir, locked, or else a directory that
// is removed at the end.
class FleetFolder {
 public:
  static StatusOr<std::unique_ptr<FleetFolder>> Open(const std::string& state_dir) {
    std::unique_ptr<FleetFolder> folder(new FleetFolder);
    folder->path_ = state_dir;
    if (state_dir.empty()) {
      std::string path = (std::filesystem::temp_directory_path() / "weft-serve-XXXXXX").string();
      if (mkdtemp(path.data()) == nullptr) {
        return Unavailable("cannot make a directory for sessions in ",
                           std::filesystem::temp_directory_path().string(),
                           "; name one with --state-dir");
      }
      folder->path_ = path;
      folder->is_own_ = true;
    }
    WEFT_ASSIGN_OR_RETURN(folder->lock_, StateDirectory::Open(folder->path_));
    return folder;
  }
  ~FleetFolder() {
    std::error_code ignored;
    if (is_own_) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_own_ = false;
  std::unique_ptr<StateDirectory> lock_;
};

// For all models: --memory less the process's own memory, or three quarters of the free memory.
int64_t FleetMemory(const EngineOptions& engine) {
  if (engine.memory_bytes == 0) return FreeHostMemoryBytes() / 4 * 3;
  return std::max(engine.memory_bytes - ResidentMemoryBytes(), int64_t{1});
}

Status CheckFlags(const ServeFlags& flags) {
  const std::string& projector = flags.model.projector_path;
  if (!projector.empty() && projector != "none") {
    return InvalidArgument(
        "--mmproj belongs to one model; with several, it is found as mmproj*.gguf next to its "
        "model's file");
  }
  if (!flags.server.kv_events.empty()) {
    return InvalidArgument(
        "--kv-events is for a server of one model, as its routers expect; start one for each");
  }
  if (!flags.server.store.empty()) {
    return InvalidArgument(
        "--store is for a server of one model, whose sessions other servers take over; start one "
        "for each");
  }
  return OkStatus();
}

struct OpenFleet {
  const ServeFlags& flags;
  FleetDoor& door;
  serve::FleetHost& host;
  serve::ModelFleet& fleet;
  serve::HttpServer& http;
  FleetGrpcDoor grpc;
  std::optional<Announcement> entry = std::nullopt;
  std::map<std::string, serve::PromptLog> prompt_logs = {};
};

// "haiku, large (2 not loaded)".
std::string NamesOf(const serve::ModelFleet& fleet) {
  std::vector<std::string> loaded;
  size_t n_others = 0;
  for (const auto& info : fleet.List()) {
    if (info.state == serve::ModelFleet::State::kLoaded) {
      loaded.push_back(info.model->name);
    } else {
      ++n_others;
    }
  }
  const std::string names = loaded.empty() ? "none" : StrJoin(loaded, ", ");
  return n_others == 0 ? names : StrCat(names, " (", n_others, " not loaded)");
}

Status Announce(OpenFleet* open) {
  serve::ModelFleet* const fleet = &open->fleet;
  WEFT_RETURN_IF_ERROR(open->grpc.Open());
  open->entry.emplace(HttpAddress(open->flags.server.host, open->http.port()),
                      open->host.created_s(), [fleet](RunningServer* server) {
                        server->model = NamesOf(*fleet);
                        for (const auto& [name, lease] : fleet->PeekAll()) {
                          AddModel(name, lease->host(), server);
                        }
                      });
  if (open->http.second_port() != 0) {
    std::fprintf(stderr, "listening on http://127.0.0.1:%d for clients of Ollama\n",
                 open->http.second_port());
  }
  WarnWhenOpenToAll(open->flags);
  const std::string seconds = StrCat((NowMicros() - open->door.start_us) / 1'000'000);
  LogLine(StrCat("ready after ", seconds, " s with ", fleet->List().size(), " models and ",
                 HumanBytes(static_cast<uint64_t>(fleet->memory_bytes())),
                 " of memory for them; loaded: ", NamesOf(*fleet)));
  return OkStatus();
}

void LookAround(OpenFleet* open) {
  for (const auto& [name, lease] : open->fleet.PeekAll()) {
    auto& log = open->prompt_logs.try_emplace(name, LogLine).first->second;
    log.Look(lease->host().engine().Turns(), NowMicros());
    const int64_t ttl_s = open->flags.server.session_ttl_s;
    if (ttl_s == 0) continue;
    const auto closed = lease->host().engine().CloseIdle(std::nullopt, std::chrono::seconds(ttl_s));
    if (closed.ok() && *closed > 0) {
      LogLine(StrCat("closed ", *closed, " sessions of ", Printable(name, 200), " not used for ",
                     ttl_s, " s"));
    }
  }
  serve::ParkWhileDrained(*open->host.drain_switch(), serve::HostsOf(open->fleet));
  open->grpc.Look();
  if (open->entry) open->entry->Update();
}

Status RunUntilEnd(ServeSignals* signals, OpenFleet* open) {
  while (true) {
    if (!open->entry && open->fleet.started()) WEFT_RETURN_IF_ERROR(Announce(open));
    const ServeSignals::Cause cause = signals->Wait(open->entry ? kLookMs : kStartLookMs);
    if (cause == ServeSignals::Cause::kEnd || cause == ServeSignals::Cause::kTerminalGone) {
      return OkStatus();
    }
    if (cause == ServeSignals::Cause::kReload) {
      ReloadKeys(open->door.keys, open->door.metrics_keys);
    } else if (open->entry) {
      LookAround(open);
    }
  }
}

Status Drain(ServeSignals* signals, OpenFleet* open) {
  open->host.BeginDrain();
  open->grpc.BeginDrain();
  const Drained drained = DrainTurns(
      open->flags, signals, [open](milliseconds grace) { return open->fleet.Drain(grace); }, [] {});
  open->grpc.Shutdown(drained.send_grace);
  open->http.Shutdown(drained.send_grace);
  LogLine("shut down");
  return drained.status;
}

int64_t LongestContext(const std::vector<serve::FleetModel>& models) {
  int64_t longest = 0;
  for (const serve::FleetModel& model : models) {
    longest = std::max(longest, model.facts.context_tokens);
  }
  return longest;
}

serve::ModelFleet::Options OptionsOf(const ServeFlags& flags, int64_t memory_bytes) {
  serve::ModelFleet::Options options;
  options.memory_bytes = memory_bytes;
  if (flags.idle_unload_s >= 0) options.idle_unload = std::chrono::seconds(flags.idle_unload_s);
  options.on_notice = [](const std::string& text) { LogLine(text); };
  return options;
}

}  // namespace

Status ServeFleet(const ServeFlags& flags, const EngineOptions& engine, FleetDoor door) {
  WEFT_RETURN_IF_ERROR(CheckFlags(flags));
  const auto parts = std::make_shared<FleetParts>();
  WEFT_ASSIGN_OR_RETURN(const auto folder, FleetFolder::Open(flags.server.state_dir));
  parts->engine = engine;
  parts->memory_bytes = FleetMemory(engine);
  parts->state_dir = folder->path();
  parts->apis.channels = serve::NewChannels(ChannelsPerKey(*door.keys));
  WEFT_ASSIGN_OR_RETURN(std::vector<serve::FleetModel> models, FleetModels(flags, parts));
  WEFT_ASSIGN_OR_RETURN(const auto signals, ServeSignals::Create());

  const int64_t context = LongestContext(models);
  const std::string first_path = flags.model.path;
  serve::FleetHost host(ServeDefaults(flags, {}), parts->drain);
  serve::ModelFleet fleet(OptionsOf(flags, parts->memory_bytes), std::move(models));
  serve::Router router;
  RegisterModelsAtHand(flags, first_path, router);
  serve::RegisterFleetApi(router, host, fleet, FleetActionsFor(flags, parts, fleet));
  serve::RegisterFleetSessions(router, fleet);
  serve::RegisterDrainApi(router, parts->drain, serve::HostsOf(fleet));
  serve::RegisterOllamaFleet(router, fleet);
  RegisterApis(flags,
               {.channels = parts->apis.channels,
                .conversations = flags.server.state_dir,
                .pull = OllamaPullFor(flags, parts, fleet)},
               host, router);
  door.options.fleet = &fleet;
  serve::FrontDoor front(std::move(door.options), &router, &host);
  WEFT_ASSIGN_OR_RETURN(const auto http,
                        serve::HttpServer::Start(ServeHttpOptions(flags), front.Hooks()));
  http->SetMaxBodyBytes(MaxBodyBytes(flags.server, context, /*row_width=*/0, /*sees=*/true));
  fleet.Start();
  OpenFleet open{.flags = flags,
                 .door = door,
                 .host = host,
                 .fleet = fleet,
                 .http = *http,
                 .grpc = {flags, door.keys, *door.metrics_keys, &fleet}};
  WEFT_RETURN_IF_ERROR(RunUntilEnd(signals.get(), &open));
  return Drain(signals.get(), &open);
}

}  // namespace weft::cli
