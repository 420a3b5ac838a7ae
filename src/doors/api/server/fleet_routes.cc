#include "doors/api/server/fleet_routes.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task_pool.h"
#include "base/clock.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/server/routes.h"
#include "doors/api/sse.h"
#include "doors/host/fleet_metrics.h"
#include "json/json_fields.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;
using State = ModelFleet::State;

// After this long without an event, a stream of events says that it is there.
constexpr std::chrono::seconds kQuiet{15};

// --- what each model is, and where it stands ----------------------------------------------

// llama-server knows a failed model as an unloaded one, and no model that is being unloaded.
Json StatusJson(State state, double share, const std::string& problem) {
  Json status = {{"value", state == State::kUnloading ? "loaded" : NameOf(state)}};
  if (state == State::kLoading) status["progress"] = share;
  if (state == State::kUnloaded && !problem.empty()) {
    status["failed"] = true;
    status["reason"] = problem;
  }
  return status;
}

// What its file says of a model that is not loaded.
Json ObjectFromFile(const FleetModel& model, int64_t created_s, const char* owner) {
  const ModelFacts& facts = model.facts;
  return {{"id", model.name},
          {"object", "model"},
          {"created", created_s},
          {"created_at", UtcTime(created_s * 1'000'000)},
          {"owned_by", owner},
          {"root", model.file_name},
          {"max_model_len", facts.context_tokens},
          {"context_length", facts.context_tokens},
          {"context_window", facts.context_tokens},
          {"max_input_tokens", facts.context_tokens},
          {"max_tokens", facts.context_tokens},
          {"aliases", model.AllNames()},
          {"tags", Json::array()},
          {"type", "model"},
          {"name", model.name},
          {"display_name", model.name},
          {"meta",
           {{"n_ctx", facts.context_tokens},
            {"n_ctx_train", facts.context_tokens},
            {"n_embd", facts.embedding_length},
            {"n_params", facts.n_parameters},
            {"size", facts.tensor_bytes},
            {"title", facts.title},
            {"quantization", facts.quantization}}}};
}

Json ObjectOf(ModelFleet& fleet, const ModelFleet::Info& info, int64_t created_s,
              const char* owner) {
  const ModelLease lease = fleet.Peek(info.model->name);
  Json object = lease != nullptr ? ModelObject(lease->host(), owner)
                                 : ObjectFromFile(*info.model, created_s, owner);
  object["status"] = StatusJson(info.state, info.loaded_share, info.problem);
  object["memory_bytes"] = info.memory_bytes;
  object["pinned"] = info.model->pinned;
  object["requests"] = info.requests;
  return object;
}

Json EntryOf(ModelFleet& fleet, const FleetModel& model) {
  if (const ModelLease lease = fleet.Peek(model.name)) return ModelEntry(lease->host());
  return {{"name", model.name}, {"model", model.name}, {"type", "model"}};
}

void HandleModels(FleetHost& host, ModelFleet& fleet, const HttpRequest& request,
                  HttpResponder& responder) {
  Json data = Json::array(), entries = Json::array();
  for (const ModelFleet::Info& info : fleet.List()) {
    data.push_back(ObjectOf(fleet, info, host.created_s(), OwnerFor(request)));
    if (const ModelLease lease = fleet.Peek(info.model->name); lease != nullptr) {
      for (Json& adapter : AdapterObjects(lease->host(), OwnerFor(request))) {
        // Its own name does not say of which model it is.
        adapter["aliases"] = Json::array({adapter["id"]});
        data.push_back(std::move(adapter));
      }
    }
    entries.push_back(EntryOf(fleet, *info.model));
  }
  const Json first = data.empty() ? Json() : data.front()["id"];
  const Json last = data.empty() ? Json() : data.back()["id"];
  SendJson(responder, {{"object", "list"},
                       {"data", std::move(data)},
                       {"models", std::move(entries)},
                       {"memory_bytes", fleet.memory_bytes()},
                       {"has_more", false},
                       {"first_id", first},
                       {"last_id", last}});
}

Status Unknown(const Status& status) {
  return WithCode(WithParam(status, "model"), "model_not_found");
}

void HandleModel(FleetHost& host, ModelFleet& fleet, const HttpRequest& request,
                 HttpResponder& responder) {
  const auto info = fleet.Find(request.path_arguments[0]);
  if (!info.ok()) return SendError(responder, Unknown(info.status()), kOpenAiErrors);
  SendJson(responder, ObjectOf(fleet, *info, host.created_s(), OwnerFor(request)));
}

// --- which models there are ------------------------------------------------------------------

// What operators ask for, and the threads that it takes.
struct Actions {
  Actions(FleetHost& host, ModelFleet& fleet, FleetActions actions)
      : read_again(std::move(actions.read_again)),
        may_pull(std::move(actions.may_pull)),
        deleter(std::move(actions.deleter)),
        pulls(&fleet, std::move(actions.pull), host.draining()) {}

  const decltype(FleetActions::read_again) read_again;
  const decltype(FleetActions::may_pull) may_pull;
  const decltype(FleetActions::deleter) deleter;
  ModelPulls pulls;
  TaskPool reloading{{.max_threads = 2, .max_posted = 2, .max_waiting = 8}};
};

Status OnlyOperators(const HttpRequest& request) {
  if (request.is_operators) return OkStatus();
  return absl::PermissionDeniedError(
      "models cannot be changed with one of several keys: they are everybody's");
}

Status Reload(ModelFleet& fleet, const Actions& actions) {
  if (!actions.read_again) return Unimplemented("this server does not read its models again");
  WEFT_ASSIGN_OR_RETURN(std::vector<FleetModel> models, actions.read_again());
  return fleet.Replace(std::move(models));
}

// With ?reload=1 after the file or folder of the models has been read again.
Task<void> HandleModelsAnew(FleetHost& host, ModelFleet& fleet, Actions& actions,
                            const HttpRequest& request, HttpResponder& responder) {
  const auto reload = request.query.find("reload");
  if (reload != request.query.end() && !reload->second.empty()) {
    Status status = OnlyOperators(request);
    if (status.ok()) {
      TaskPool::EntryInTurn turn = actions.reloading.EnterInTurn(request.Account());
      const bool entered = co_await turn;
      status = entered ? Reload(fleet, actions) : ResourceExhausted("too many ask for this");
    }
    if (!status.ok()) {
      SendError(responder, status, kLlamaErrors);
      co_return;
    }
  }
  HandleModels(host, fleet, request, responder);
}

// --- the server ----------------------------------------------------------------------------

// Why sessions of a loaded model cannot be saved; empty: they can.
std::string SaveProblem(ModelFleet& fleet) {
  for (const auto& [name, lease] : fleet.PeekAll()) {
    const EngineStats stats = lease->host().engine().Stats();
    if (stats.sessions_unsaved > 0) return StrCat(name, ": ", stats.save_problem);
  }
  return "";
}

void HandleHealth(FleetHost& host, ModelFleet& fleet, HttpResponder& responder) {
  if (host.phase() == Phase::kDraining || !fleet.started()) {
    return SendError(responder, MakeError(503, "unavailable_error", host.phase_reason()),
                     kLlamaErrors);
  }
  const Status drained = host.drain_switch()->MayBegin();
  if (!drained.ok()) return SendError(responder, ToApiError(drained), kLlamaErrors);
  const std::string problem = SaveProblem(fleet);
  if (problem.empty()) return SendJson(responder, {{"status", "ok"}});
  SendJson(responder, {{"status", "degraded"},
                       {"reason", StrCat("sessions cannot be saved (", problem,
                                         "): a restart would lose their last turns")}});
}

// A model's metrics, as far as the request may see them.
MetricFamilies MetricsOf(Host& host, const HttpRequest& request) {
  if (request.is_operators) return OperatorMetrics(host);
  const auto own = host.engine().ListSessions(request.domain);
  return host.metrics().CollectOwn(request.domain, own.ok() ? *own : std::vector<SessionInfo>());
}

void HandleMetrics(FleetHost& host, ModelFleet& fleet, const HttpRequest& request,
                   HttpResponder& responder) {
  std::vector<ModelMetrics> models;
  for (const auto& [name, lease] : fleet.PeekAll()) {
    models.push_back({name, MetricsOf(lease->host(), request)});
  }
  MetricFamilies families;
  if (request.is_operators) families = host.metrics().Collect(nullptr);
  families = MergeMetrics(std::move(families), std::move(models));
  if (request.is_operators) AddFleetMetrics(fleet.List(), &families);
  responder.Send(200, "text/plain; version=0.0.4; charset=utf-8", TextOf(families),
                 {{"Process-Start-Time-Unix", StrCat(host.created_s())}});
}

// --- loading and unloading -------------------------------------------------------------------

StatusOr<std::string> ReadName(const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  ApiFields fields(body);
  const auto name = fields.String("model");
  if (!name || name->empty()) fields.Fail("model", "must name a model");
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  return *name;
}

// As llama-server answers for a model that is loaded, unloaded, or here already.
void SendOutcome(HttpResponder& responder, Status status) {
  if (status.ok()) return SendJson(responder, {{"success", true}});
  if (status.code() == StatusCode::kNotFound) status = Unknown(status);
  const bool is_done = status.code() == StatusCode::kFailedPrecondition ||
                       status.code() == StatusCode::kAlreadyExists;
  if (is_done) status = InvalidArgument(Message(status));
  SendError(responder, status, kLlamaErrors);
}

void HandlePull(Actions& actions, const HttpRequest& request, HttpResponder& responder) {
  Status status = OnlyOperators(request);
  if (!status.ok()) return SendOutcome(responder, status);
  const auto name = ReadName(request);
  status = name.status();
  if (status.ok() && actions.may_pull) status = actions.may_pull(*name);
  if (status.ok()) status = actions.pulls.Begin(request.Account(), *name);
  SendOutcome(responder, status);
}

Status Delete(ModelFleet& fleet, const Actions& actions, const HttpRequest& request) {
  WEFT_RETURN_IF_ERROR(OnlyOperators(request));
  const auto name = request.query.find("model");
  if (name == request.query.end() || name->second.empty()) {
    return InvalidArgument("?model= must name a model");
  }
  WEFT_ASSIGN_OR_RETURN(const ModelFleet::Info info, fleet.FindExactly(name->second));
  if (!actions.deleter) return Unimplemented("this server deletes no models; use 'weft rm NAME'");
  WEFT_ASSIGN_OR_RETURN(std::function<void()> erase, actions.deleter(*info.model));
  return fleet.Remove(info.model->name, std::move(erase));
}

using Action = Status (ModelFleet::*)(std::string_view);

void HandleAction(ModelFleet& fleet, Action action, const HttpRequest& request,
                  HttpResponder& responder) {
  const auto name = ReadName(request);
  Status status = name.status();
  if (status.ok()) status = (fleet.*action)(*name);
  SendOutcome(responder, status);
}

void HandleUnload(ModelFleet& fleet, const HttpRequest& request, HttpResponder& responder) {
  const Status status = OnlyOperators(request);
  if (!status.ok()) return SendOutcome(responder, status);
  HandleAction(fleet, &ModelFleet::Unload, request, responder);
}

Json DownloadJson(const ModelFleet::Event& event) {
  using Happening = ModelFleet::Happening;
  if (event.what == Happening::kRemoved) return {{"model", event.model}, {"event", "model_remove"}};
  if (event.what == Happening::kDownloaded) {
    return {{"model", event.model}, {"event", "download_finished"}, {"data", Json::object()}};
  }
  if (event.what == Happening::kDownloadFailed) {
    return {{"model", event.model},
            {"event", "download_failed"},
            {"data", {{"reason", event.problem}}}};
  }
  return {{"model", event.model},
          {"event", "download_progress"},
          {"data", {{"done", event.done_bytes}, {"total", event.total_bytes}}}};
}

Json EventJson(const ModelFleet::Event& event) {
  if (event.what != ModelFleet::Happening::kState) return DownloadJson(event);
  Json data = {{"status", event.state == State::kUnloading ? "unloading" : NameOf(event.state)}};
  if (event.state == State::kLoading) {
    data["progress"] = {{"stages", Json::array({"text_model"})},
                        {"current", "text_model"},
                        {"value", event.loaded_share}};
  }
  if (event.state == State::kUnloaded && !event.problem.empty()) {
    data["failed"] = true;
    data["reason"] = event.problem;
  }
  return {{"model", event.model}, {"event", "model_status"}, {"data", std::move(data)}};
}

// Streams what happens from now on, until the client leaves or the server shuts down.
Task<void> HandleEvents(FleetHost& host, ModelFleet& fleet, const HttpRequest&,
                        HttpResponder& responder) {
  Signal wake;
  const std::function<void()> notify = wake.Notifier();
  const std::shared_ptr<void> watch = fleet.WatchEvents(notify);
  const auto before = fleet.EventsSince(0);
  int64_t last = before.empty() ? 0 : before.back().number;
  const std::stop_callback<std::function<void()>> on_gone(responder.cancellation(), notify);
  const std::stop_callback<std::function<void()>> on_draining(host.draining(), notify);
  SseStream stream(responder);
  bool is_open = stream.Comment("open");
  while (is_open && !responder.gone() && host.phase() != Phase::kDraining) {
    for (const ModelFleet::Event& event : fleet.EventsSince(last)) {
      last = event.number;
      is_open = stream.Data(EventJson(event));
    }
    co_await responder.Room();
    const bool is_woken = co_await wake.WaitUntil(std::chrono::steady_clock::now() + kQuiet);
    if (!is_woken) is_open = stream.Comment("still open");
  }
  stream.End();
}

void AddChanges(Router& router, FleetHost& host, ModelFleet& fleet,
                const std::shared_ptr<Actions>& actions) {
  router.Add({.method = "GET",
              .pattern = "/models",
              .shape = kLlamaErrors,
              .task =
                  [&host, &fleet, actions](const HttpRequest& request, HttpResponder& r) {
                    return HandleModelsAnew(host, fleet, *actions, request, r);
                  },
              .needs_model = false,
              .is_public = true});
  router.Add({.method = "POST",
              .pattern = "/models",
              .shape = kLlamaErrors,
              .handler = [actions](const HttpRequest& request,
                                   HttpResponder& r) { HandlePull(*actions, request, r); },
              .needs_model = false});
  router.Add({.method = "DELETE",
              .pattern = "/models",
              .shape = kLlamaErrors,
              .handler =
                  [&fleet, actions](const HttpRequest& request, HttpResponder& r) {
                    SendOutcome(r, Delete(fleet, *actions, request));
                  },
              .needs_model = false});
}

void AddActions(Router& router, FleetHost& host, ModelFleet& fleet) {
  router.Add({.method = "POST",
              .pattern = "/models/load",
              .shape = kLlamaErrors,
              .handler =
                  [&fleet](const HttpRequest& request, HttpResponder& responder) {
                    HandleAction(fleet, &ModelFleet::Load, request, responder);
                  },
              .needs_model = false,
              .is_quick = true});
  router.Add({.method = "POST",
              .pattern = "/models/unload",
              .shape = kLlamaErrors,
              .handler = [&fleet](const HttpRequest& request,
                                  HttpResponder& r) { HandleUnload(fleet, request, r); },
              .needs_model = false,
              .is_quick = true});
  router.Add(
      {.method = "GET",
       .pattern = "/models/sse",
       .shape = kLlamaErrors,
       .task = [&host, &fleet](const HttpRequest& request,
                               HttpResponder& r) { return HandleEvents(host, fleet, request, r); },
       .needs_model = false});
}

void AddLists(Router& router, FleetHost& host, ModelFleet& fleet) {
  router.Add(
      {.method = "GET",
       .pattern = "/v1/models",
       .handler = [&host, &fleet](const HttpRequest& request,
                                  HttpResponder& r) { HandleModels(host, fleet, request, r); },
       .needs_model = false,
       .is_public = true,
       .is_quick = true});
  for (const char* const path : {"/v1/models/{id}", "/models/{id}"}) {
    router.Add(
        {.method = "GET",
         .pattern = path,
         .shape = kOpenAiErrors,
         .handler = [&host, &fleet](const HttpRequest& request,
                                    HttpResponder& r) { HandleModel(host, fleet, request, r); },
         .needs_model = false,
         .is_quick = true});
  }
}

}  // namespace

void RegisterFleetApi(Router& router, FleetHost& host, ModelFleet& fleet, FleetActions actions) {
  for (const char* const path : {"/health", "/v1/health"}) {
    router.Add({.method = "GET",
                .pattern = path,
                .shape = kLlamaErrors,
                .handler = [&host, &fleet](const HttpRequest&,
                                           HttpResponder& r) { HandleHealth(host, fleet, r); },
                .needs_model = false,
                .is_public = true,
                .is_quick = true,
                .is_watched = true});
  }
  if (actions.metrics) {
    router.Add(
        {.method = "GET",
         .pattern = "/metrics",
         .shape = kLlamaErrors,
         .handler = [&host, &fleet](const HttpRequest& request,
                                    HttpResponder& r) { HandleMetrics(host, fleet, request, r); },
         .needs_model = false,
         .is_quick = true,
         .is_operators = true,
         .is_watched = true});
  }
  AddActions(router, host, fleet);
  AddChanges(router, host, fleet, std::make_shared<Actions>(host, fleet, std::move(actions)));
  AddLists(router, host, fleet);
}

}  // namespace weft::serve
