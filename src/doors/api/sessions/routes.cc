#include "doors/api/sessions/routes.h"

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/strings.h"
#include "doors/api/fields/cache_report.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/fields/support.h"
#include "doors/host/shared_sessions.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

Json SessionObject(const SessionInfo& info) {
  Json object = {{"id", info.name},
                 {"object", "session"},
                 {"state", NameOf(info.state)},
                 {"tokens", info.n_tokens},
                 {"computed_tokens", info.n_computed},
                 {"pages", info.pages},
                 {"shared_pages", info.shared_pages},
                 {"shared_with", info.shared_with},
                 {"state_bytes", info.state_bytes},
                 {"slot_bytes", info.slot_bytes},
                 {"idle_ms", info.idle_us / 1000},
                 {"saved", info.saved}};
  for (const AdapterScale& adapter : info.adapters) {
    object["adapters"][adapter.name] = adapter.scale;
  }
  if (!info.owner.empty()) object["owner"] = info.owner;
  if (!info.note.empty()) object["note"] = info.note;
  return object;
}

void AddSessions(Host& host, const std::string& domain, Json* data) {
  const auto sessions = host.engine().ListSessions(domain);
  if (!sessions.ok()) return;  // it is being unloaded
  for (const SessionInfo& info : *sessions) {
    if (info.name.empty()) continue;
    data->push_back(SessionObject(info));
    data->back()["model"] = host.model_id();
  }
}

// Of the model that the query names, or of all. Looking loads none, and keeps none loaded.
void ListOfFleet(ModelFleet& fleet, const HttpRequest& request, HttpResponder& responder) {
  const auto wanted = request.query.find("model");
  Json data = Json::array(), absent = Json::array();
  for (const ModelFleet::Info& info : fleet.List()) {
    const std::string& name = info.model->name;
    if (wanted != request.query.end()) {
      const auto found = fleet.Find(wanted->second);
      if (!found.ok()) return SendError(responder, found.status(), kPlainErrors);
      if (found->model != info.model) continue;
    }
    const ModelLease lease = fleet.Peek(name);
    if (lease == nullptr) {
      absent.push_back(name);
    } else {
      AddSessions(lease->host(), request.domain, &data);
    }
  }
  SendJson(
      responder,
      {{"object", "list"}, {"data", std::move(data)}, {"models_not_loaded", std::move(absent)}});
}

StatusOr<Json> List(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const auto sessions, host.engine().ListSessions(request.domain));
  Json data = Json::array();
  for (const SessionInfo& info : sessions) {
    if (!info.name.empty()) data.push_back(SessionObject(info));
  }
  return Json{{"object", "list"}, {"data", std::move(data)}};
}

// An optional body.
StatusOr<Json> OptionalBody(const HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  return ParseJson(request.body, {});
}

// The body's name for a new session, or an unused one.
std::string NewName(ApiFields* fields) {
  auto name = fields->String("session_id");
  const auto id = fields->String("id");
  if (!name.has_value()) name = id;
  if (!name.has_value()) return NewId("session-");
  fields->Adopt(ValidateSessionName(*name));
  return *std::move(name);
}

// What a body asks for.
struct Wish {
  std::string name;  // for the new session
  int64_t position = -1;
};

StatusOr<Wish> ReadWish(const HttpRequest& request, bool with_position) {
  WEFT_ASSIGN_OR_RETURN(const Json body, OptionalBody(request));
  ApiFields fields(body);
  Wish wish{.name = NewName(&fields)};
  if (with_position) {
    wish.position =
        fields.Integer("position", -1, std::numeric_limits<int64_t>::max()).value_or(-1);
  }
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  return wish;
}

StatusOr<Json> Describe(Host& host, const StatusOr<SessionId>& session) {
  WEFT_RETURN_IF_ERROR(session.status());
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, host.engine().Inspect(*session));
  return SessionObject(info);
}

Task<StatusOr<Json>> Create(Host& host, const HttpRequest& request) {
  const StatusOr<Wish> wish = ReadWish(request, /*with_position=*/false);
  if (!wish.ok()) co_return wish.status();
  const SessionOptions options{.name = wish->name, .domain = request.domain};
  const auto create = [&](std::function<void(StatusOr<SessionId>)> done) {
    host.engine().CreateSession(options, std::move(done));
  };
  const StatusOr<SessionId> session = co_await AnswerOf<StatusOr<SessionId>>(create);
  co_return Describe(host, session);
}

// Deletes sessions idle for that long, including their files.
StatusOr<std::chrono::seconds> ReadIdle(const HttpRequest& request) {
  const auto it = request.query.find("idle_seconds");
  int64_t seconds = 0;
  constexpr int64_t kMaxSeconds = int64_t{1} << 40;  // still a number when in microseconds
  if (it == request.query.end() || !ParseInt64(it->second, &seconds) || seconds < 0 ||
      seconds > kMaxSeconds) {
    return WithParam(InvalidArgument("specify which sessions: /v1/sessions?idle_seconds=3600 "
                                     "closes those not used for an hour"),
                     "idle_seconds");
  }
  return std::chrono::seconds(seconds);
}

Task<StatusOr<Json>> DropIdle(Host& host, const HttpRequest& request) {
  const StatusOr<std::chrono::seconds> idle = ReadIdle(request);
  if (!idle.ok()) co_return idle.status();
  const auto close = [&](std::function<void(StatusOr<int64_t>)> done) {
    host.engine().CloseIdle(request.domain, *idle, std::move(done));
  };
  const StatusOr<int64_t> closed = co_await AnswerOf<StatusOr<int64_t>>(close);
  if (!closed.ok()) co_return closed.status();
  co_return Json{{"closed", *closed}};
}

// Looking takes a session of a shared store from nobody.
Task<StatusOr<Json>> Show(Host& host, const HttpRequest& request) {
  const std::string& name = request.path_arguments[0];
  const Status valid = ValidateSessionName(name);
  if (!valid.ok()) co_return valid;
  auto looking = LookAtSession(host.engine(), request.domain, name);
  const StatusOr<SessionInfo> info = co_await looking;
  if (!info.ok()) co_return info.status();
  Json object = SessionObject(*info);
  AddCacheReport(host.answerer().cache_reports().OfSession(request.domain, name), &object);
  co_return object;
}

// For the key's latest prompt, with or without a session.
StatusOr<Json> LastCacheReport(Host& host, const HttpRequest& request) {
  const auto report = host.answerer().cache_reports().Last(request.domain);
  if (report == nullptr) {
    return NotFound("no prompt of this API key has been computed since the server started");
  }
  return Json{{"object", "cache_report"}, {"cache_report", CacheReportJson(*report)}};
}

Task<StatusOr<Json>> Fork(Host& host, const HttpRequest& request) {
  const StatusOr<Wish> wish = ReadWish(request, /*with_position=*/true);
  if (!wish.ok()) co_return wish.status();
  const std::string& name = request.path_arguments[0];
  const Status valid = ValidateSessionName(name);
  if (!valid.ok()) co_return valid;
  const SessionOptions options{.name = wish->name, .domain = request.domain};
  const auto fork = [&](SessionId session, std::function<void(StatusOr<SessionId>)> done) {
    host.engine().Fork(session, wish->position, options, std::move(done));
  };
  auto forking = CallSession<StatusOr<SessionId>>(host.engine(), request.domain, name, fork);
  const StatusOr<SessionId> forked = co_await forking;
  StatusOr<Json> object = Describe(host, forked);
  if (object.ok()) (*object)["forked_from"] = name;
  co_return object;
}

Json Outcome(const char* what, const HttpRequest& request) {
  return {{what, true}, {"session_id", request.path_arguments[0]}};
}

// Resetting or closing a session that does not exist succeeds.
using Done = std::function<void(Status)>;

Task<StatusOr<Json>> WithSession(Host& host, const HttpRequest& request, const char* what,
                                 bool unknown_is_fine, void (*act)(Engine&, SessionId, Done)) {
  const std::string& name = request.path_arguments[0];
  const Status valid = ValidateSessionName(name);
  if (!valid.ok()) co_return valid;
  const auto ask = [&](SessionId session, Done done) {
    act(host.engine(), session, std::move(done));
  };
  auto asking = CallSession<Status>(host.engine(), request.domain, name, ask);
  const Status status = co_await asking;
  const bool is_fine = status.code() == StatusCode::kNotFound && unknown_is_fine;
  if (!status.ok() && !is_fine) co_return status;
  co_return Outcome(what, request);
}

// What the session's replies were is deleted with it.
void ForgetReplies(Host& host, const HttpRequest& request) {
  host.answerer().prompts().replies().Forget(request.domain, request.path_arguments[0]);
}

Task<StatusOr<Json>> Reset(Host& host, const HttpRequest& request) {
  ForgetReplies(host, request);
  return WithSession(host, request, "reset", true, [](Engine& engine, SessionId id, Done done) {
    engine.Reset(id, std::move(done));
  });
}
Task<StatusOr<Json>> Drop(Host& host, const HttpRequest& request) {
  ForgetReplies(host, request);
  return WithSession(host, request, "closed", true, [](Engine& engine, SessionId id, Done done) {
    engine.Close(id, /*forget=*/true, std::move(done));
  });
}
Task<StatusOr<Json>> Park(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "parked", false, [](Engine& engine, SessionId id, Done done) {
    engine.Park(id, std::move(done));
  });
}
Task<StatusOr<Json>> Restore(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "restored", false, [](Engine& engine, SessionId id, Done done) {
    engine.Restore(id, std::move(done));
  });
}
Task<StatusOr<Json>> Move(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "moved", false, [](Engine& engine, SessionId id, Done done) {
    engine.Release(id, std::move(done));
  });
}

void Respond(const StatusOr<Json>& answer, HttpResponder& responder) {
  if (answer.ok()) return SendJson(responder, *answer);
  SendError(responder, answer.status(), kOpenAiErrors);
}

using Action = Task<StatusOr<Json>> (*)(Host&, const HttpRequest&);

Task<void> Act(Host& host, const HttpRequest& request, HttpResponder& responder, Action action) {
  const StatusOr<Json> answer = co_await action(host, request);
  Respond(answer, responder);
}

}  // namespace

void RegisterFleetSessions(Router& router, ModelFleet& fleet) {
  router.Add({.method = "GET",
              .pattern = "/v1/sessions",
              .handler = [&fleet](const HttpRequest& request,
                                  HttpResponder& r) { ListOfFleet(fleet, request, r); },
              .needs_model = false,
              .is_quick = true,
              .is_watched = true});
}

void RegisterSessionsApi(Router& router, Host& host) {
  using Look = StatusOr<Json> (*)(Host&, const HttpRequest&);
  const auto add_look = [&](const char* path, Look look) {
    router.Add({.method = "GET",
                .pattern = path,
                .handler = [&host, look](const HttpRequest& request,
                                         HttpResponder& r) { Respond(look(host, request), r); },
                .is_quick = true,
                .is_watched = look == &List});
  };
  const auto add = [&](const char* method, const char* path, Action action) {
    router.AddTask(method, path, kOpenAiErrors,
                   [&host, action](const HttpRequest& request, HttpResponder& responder) {
                     return Act(host, request, responder, action);
                   });
  };
  add_look("/v1/sessions", List);
  add("POST", "/v1/sessions", Create);
  add("DELETE", "/v1/sessions", DropIdle);
  add_look("/v1/cache/last", LastCacheReport);
  // Quick as well: it waits only for a shared store, and holds no thread meanwhile.
  router.Add({.method = "GET",
              .pattern = "/v1/sessions/{id}",
              .task = [&host](const HttpRequest& request,
                              HttpResponder& r) { return Act(host, request, r, Show); },
              .is_quick = true});
  add("DELETE", "/v1/sessions/{id}", Drop);
  add("POST", "/v1/sessions/{id}/fork", Fork);
  add("POST", "/v1/sessions/{id}/reset", Reset);
  add("POST", "/v1/sessions/{id}/park", Park);
  add("POST", "/v1/sessions/{id}/restore", Restore);
  add("POST", "/v1/sessions/{id}/move", Move);
}

}  // namespace weft::serve
