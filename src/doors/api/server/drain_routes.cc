#include "doors/api/server/drain_routes.h"

#include <cstdint>
#include <utility>

#include "async/signal.h"
#include "async/task.h"
#include "base/log.h"
#include "doors/api/fields/support.h"
#include "weft/engine.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

struct Drainable {
  std::shared_ptr<DrainSwitch> drain;
  LoadedHosts hosts;
};

// An operator asks again until no turns and no sessions are left.
Json StateJson(const Drainable& server) {
  int64_t turns = 0, in_memory = 0, unsaved = 0;
  for (const HeldHost& host : server.hosts()) {
    const EngineStats stats = host->engine().Stats();
    turns += stats.turns_running + stats.turns_queued;
    in_memory += stats.sessions_ready + stats.sessions_running;
    unsaved += stats.sessions_unsaved;
  }
  return {{"drained", server.drain->is_on()},
          {"turns", turns},
          {"sessions_in_memory", in_memory},
          {"sessions_unsaved", unsaved}};
}

Status MayDrain(const HttpRequest& request) {
  if (request.is_operators) return OkStatus();
  return absl::PermissionDeniedError(
      "one of several keys cannot drain the server: use the operator's, of --metrics-key-file");
}

void Set(const Drainable& server, bool is_on) {
  if (!server.drain->Set(is_on)) return;
  LogLine(is_on ? "drained by an operator: running turns end, new ones are refused; POST /undrain "
                  "ends this"
                : "takes new turns again");
}

Task<void> Drain(const Drainable& server, const HttpRequest& request, HttpResponder& responder) {
  Status status = MayDrain(request);
  if (status.ok()) {
    Set(server, true);
    for (const HeldHost& host : server.hosts()) {
      const auto park = [&host](std::function<void(StatusOr<int64_t>)> done) {
        host->engine().ParkIdle(std::move(done));
      };
      const StatusOr<int64_t> parked = co_await AnswerOf<StatusOr<int64_t>>(park);
      status.Update(parked.status());
    }
  }
  if (!status.ok()) {
    SendError(responder, status, kLlamaErrors);
  } else {
    SendJson(responder, StateJson(server));
  }
}

void Undrain(const Drainable& server, const HttpRequest& request, HttpResponder& responder) {
  const Status status = MayDrain(request);
  if (!status.ok()) return SendError(responder, status, kLlamaErrors);
  Set(server, false);
  SendJson(responder, StateJson(server));
}

}  // namespace

LoadedHosts OnlyHost(Host& host) {
  return [&host] {
    std::vector<HeldHost> hosts;
    if (host.phase() == Phase::kReady) hosts.push_back(HeldHost(HeldHost(), &host));
    return hosts;
  };
}

LoadedHosts HostsOf(ModelFleet& fleet) {
  return [&fleet] {
    std::vector<HeldHost> hosts;
    for (auto& [name, lease] : fleet.PeekAll()) {
      Host* const host = &lease->host();
      hosts.emplace_back(std::move(lease), host);
    }
    return hosts;
  };
}

void RegisterDrainApi(Router& router, std::shared_ptr<DrainSwitch> drain, LoadedHosts hosts) {
  const auto server = std::make_shared<const Drainable>(
      Drainable{.drain = std::move(drain), .hosts = std::move(hosts)});
  router.Add({.method = "POST",
              .pattern = "/drain",
              .shape = kLlamaErrors,
              .task = [server](const HttpRequest& request,
                               HttpResponder& r) { return Drain(*server, request, r); },
              .needs_model = false,
              .is_operators = true});
  router.Add({.method = "POST",
              .pattern = "/undrain",
              .shape = kLlamaErrors,
              .handler = [server](const HttpRequest& request,
                                  HttpResponder& r) { Undrain(*server, request, r); },
              .needs_model = false,
              .is_quick = true,
              .is_operators = true});
}

void ParkWhileDrained(const DrainSwitch& drain, const LoadedHosts& hosts) {
  if (!drain.is_on()) return;
  for (const HeldHost& host : hosts()) {
    host->engine().ParkIdle([](const StatusOr<int64_t>&) {});
  }
}

}  // namespace weft::serve
