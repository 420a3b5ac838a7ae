#include "api/sessions/routes.h"

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/session_name.h"
#include "api/support.h"
#include "base/strings.h"

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
  if (!info.note.empty()) object["note"] = info.note;
  return object;
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

StatusOr<Json> Create(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, OptionalBody(request));
  ApiFields fields(body);
  const std::string name = NewName(&fields);
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  WEFT_ASSIGN_OR_RETURN(const SessionId session,
                        host.engine().CreateSession({.name = name, .domain = request.domain}));
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, host.engine().Inspect(session));
  return SessionObject(info);
}

// Deletes sessions idle for that long, including their files.
StatusOr<Json> DropIdle(Host& host, const HttpRequest& request) {
  const auto it = request.query.find("idle_seconds");
  int64_t seconds = 0;
  constexpr int64_t kMostSeconds = int64_t{1} << 40;  // still a number when in microseconds
  if (it == request.query.end() || !ParseInt64(it->second, &seconds) || seconds < 0 ||
      seconds > kMostSeconds) {
    return WithParam(InvalidArgument("specify which sessions: /v1/sessions?idle_seconds=3600 "
                                     "closes those not used for an hour"),
                     "idle_seconds");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t closed,
                        host.engine().CloseIdle(request.domain, std::chrono::seconds(seconds)));
  return Json{{"closed", closed}};
}

StatusOr<SessionId> Find(Host& host, const HttpRequest& request) {
  const std::string& name = request.path_arguments[0];
  WEFT_RETURN_IF_ERROR(ValidateSessionName(name));
  return host.engine().FindSession(request.domain, name);
}

StatusOr<Json> Show(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const SessionId session, Find(host, request));
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, host.engine().Inspect(session));
  return SessionObject(info);
}

StatusOr<Json> Fork(Host& host, const HttpRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const Json body, OptionalBody(request));
  ApiFields fields(body);
  const std::string name = NewName(&fields);
  const int64_t position =
      fields.Integer("position", -1, std::numeric_limits<int64_t>::max()).value_or(-1);
  std::vector<std::string> ignored;
  WEFT_RETURN_IF_ERROR(fields.Finish(&ignored));
  WEFT_ASSIGN_OR_RETURN(const SessionId session, Find(host, request));
  WEFT_ASSIGN_OR_RETURN(
      const SessionId fork,
      host.engine().Fork(session, position, {.name = name, .domain = request.domain}));
  WEFT_ASSIGN_OR_RETURN(const SessionInfo info, host.engine().Inspect(fork));
  Json object = SessionObject(info);
  object["forked_from"] = request.path_arguments[0];
  return object;
}

Json Outcome(const char* what, const HttpRequest& request) {
  return {{what, true}, {"session_id", request.path_arguments[0]}};
}

// Resetting or closing a session that does not exist succeeds.
StatusOr<Json> WithSession(Host& host, const HttpRequest& request, const char* what,
                           bool unknown_is_fine, Status (*act)(Engine&, SessionId)) {
  const StatusOr<SessionId> session = Find(host, request);
  if (session.status().code() == StatusCode::kNotFound && unknown_is_fine) {
    return Outcome(what, request);
  }
  WEFT_RETURN_IF_ERROR(session.status());
  const Status status = act(host.engine(), *session);
  // It was closed between the two calls.
  const bool vanished = status.code() == StatusCode::kNotFound && unknown_is_fine;
  if (!vanished) WEFT_RETURN_IF_ERROR(status);
  return Outcome(what, request);
}

StatusOr<Json> Reset(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "reset", true,
                     [](Engine& engine, SessionId id) -> Status { return engine.Reset(id); });
}
StatusOr<Json> Drop(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "closed", true, [](Engine& engine, SessionId id) -> Status {
    return engine.Close(id, /*forget=*/true);
  });
}
StatusOr<Json> Park(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "parked", false,
                     [](Engine& engine, SessionId id) -> Status { return engine.Park(id); });
}
StatusOr<Json> Restore(Host& host, const HttpRequest& request) {
  return WithSession(host, request, "restored", false,
                     [](Engine& engine, SessionId id) -> Status { return engine.Restore(id); });
}

}  // namespace

void RegisterSessionsApi(Router& router, Host& host) {
  using Action = StatusOr<Json> (*)(Host&, const HttpRequest&);
  const auto add = [&](const char* method, const char* path, Action action) {
    router.Add({.method = method,
                .pattern = path,
                .handler =
                    [&host, action](const HttpRequest& request, HttpResponder& responder) {
                      const StatusOr<Json> answer = action(host, request);
                      if (answer.ok()) return SendJson(responder, *answer);
                      SendError(responder, answer.status(), ErrorShape::kOpenAi);
                    },
                .is_quick = std::string_view(method) == "GET",
                .is_watched = action == &List});
  };
  add("GET", "/v1/sessions", List);
  add("POST", "/v1/sessions", Create);
  add("DELETE", "/v1/sessions", DropIdle);
  add("GET", "/v1/sessions/{id}", Show);
  add("DELETE", "/v1/sessions/{id}", Drop);
  add("POST", "/v1/sessions/{id}/fork", Fork);
  add("POST", "/v1/sessions/{id}/reset", Reset);
  add("POST", "/v1/sessions/{id}/park", Park);
  add("POST", "/v1/sessions/{id}/restore", Restore);
}

}  // namespace weft::serve
