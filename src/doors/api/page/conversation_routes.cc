#include "doors/api/page/conversation_routes.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "async/signal.h"
#include "async/task.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/fields/support.h"
#include "doors/api/page/conversation_store.h"
#include "doors/host/shared_sessions.h"
#include "json/json_fields.h"
#include "json/json_text.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// The depth of a conversation's JSON: versions of messages nest.
constexpr JsonLimits kLimits = {.max_depth = 400};

// The store of a folder, or of the engine's state directory: opened when it is first asked for,
// because only once the model is loaded, that directory is locked.
class Stores {
 public:
  Stores(Host& host, std::optional<std::string> folder) : host_(host), folder_(std::move(folder)) {}

  // Null: there is no state directory.
  ConversationStore* store() {
    MutexLock lock(&mutex_);
    const std::string& folder = folder_ ? *folder_ : host_.engine().options().state_dir;
    if (store_ == nullptr && !folder.empty()) store_ = std::make_unique<ConversationStore>(folder);
    return store_.get();
  }

 private:
  Host& host_;
  const std::optional<std::string> folder_;
  Mutex mutex_;
  std::unique_ptr<ConversationStore> store_ WEFT_GUARDED_BY(mutex_);
};

void Refuse(const Status& status, HttpResponder& responder) {
  ApiError error = ToApiError(status);
  if (status.code() == StatusCode::kAborted) {
    error = MakeError(409, "conflict_error", std::string(Message(status)));
    error.code = "version_conflict";
  } else if (status.code() == StatusCode::kOutOfRange) {
    error = MakeError(413, "request_too_large", std::string(Message(status)));
  }
  SendError(responder, error, kOpenAiErrors);
}

void List(ConversationStore* store, const HttpRequest& request, HttpResponder& responder) {
  if (store == nullptr) {
    return SendJson(responder, {{"object", "list"}, {"kept", false}, {"data", Json::array()}});
  }
  const auto listing = store->List(request.domain);
  if (!listing.ok()) return Refuse(listing.status(), responder);
  const std::string tag = StrCat("\"", listing->tag, "\"");
  HttpHeaders headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}};
  if (request.Header("If-None-Match") == tag) {
    return responder.Send(304, "", "", std::move(headers));
  }
  Json data = Json::array();
  for (const auto& [id, item] : listing->items) {
    data.push_back({{"id", id}, {"version", item.version}, {"bytes", item.n_bytes}});
  }
  const Json body = {
      {"object", "list"}, {"kept", true}, {"store", listing->store}, {"data", std::move(data)}};
  responder.Send(200, "application/json", CompactJson(body), std::move(headers));
}

void Get(ConversationStore& store, const HttpRequest& request, HttpResponder& responder) {
  const std::string& id = request.path_arguments[0];
  const auto found = store.Get(request.domain, id);
  if (!found.ok()) return Refuse(found.status(), responder);
  // As it was put: it was checked then.
  responder.Send(200, "application/json",
                 StrCat("{\"id\":\"", id, "\",\"version\":", found->version,
                        ",\"conversation\":", found->text, "}"));
}

StatusOr<int64_t> PutVersion(ConversationStore& store, const HttpRequest& request) {
  const auto it = request.query.find("version");
  int64_t based_on = 0;
  if (it == request.query.end() || !ParseInt64(it->second, &based_on) || based_on < 0) {
    return InvalidArgument("say which version this replaces: ?version=0 for a new conversation");
  }
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, kLimits));
  if (!body.is_object()) return InvalidArgument("a conversation is a JSON object");
  return store.Put(request.domain, request.path_arguments[0], based_on, request.body);
}

void Put(ConversationStore& store, const HttpRequest& request, HttpResponder& responder) {
  const auto version = PutVersion(store, request);
  if (!version.ok()) return Refuse(version.status(), responder);
  SendJson(responder, {{"id", request.path_arguments[0]}, {"version", *version}});
}

void Delete(ConversationStore& store, const HttpRequest& request, HttpResponder& responder) {
  const Status status = store.Delete(request.domain, request.path_arguments[0]);
  if (!status.ok()) return Refuse(status, responder);
  SendJson(responder, {{"id", request.path_arguments[0]}, {"deleted", true}});
}

Task<void> ShowSession(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const std::string& name = request.path_arguments[0];
  Status status = ValidateSessionName(name);
  StatusOr<std::vector<int32_t>> tokens = std::vector<int32_t>();
  if (status.ok()) {
    const auto ask = [&](SessionId session,
                         std::function<void(StatusOr<std::vector<int32_t>>)> done) {
      host.engine().Tokens(session, std::move(done));
    };
    auto asking =
        CallSession<StatusOr<std::vector<int32_t>>>(host.engine(), request.domain, name, ask);
    tokens = co_await asking;
    status = tokens.status();
  }
  if (!status.ok()) {
    SendError(responder, status, kOpenAiErrors);
    co_return;
  }
  SendJson(responder, {{"id", name},
                       {"tokens", tokens->size()},
                       {"text", host.model().Decode(*tokens, /*render_special=*/true)}});
}

using Action = void (*)(ConversationStore&, const HttpRequest&, HttpResponder&);

void Act(ConversationStore* store, Action action, const HttpRequest& request,
         HttpResponder& responder) {
  if (store != nullptr) return action(*store, request, responder);
  Refuse(Unimplemented("this server has no state directory; start it with --state-dir DIR to keep "
                       "conversations"),
         responder);
}

}  // namespace

void RegisterConversationsApi(Router& router, Host& host, std::optional<std::string> folder) {
  const bool needs_model = !folder.has_value();
  const auto stores = std::make_shared<Stores>(host, std::move(folder));
  router.Add({.method = "GET",
              .pattern = "/v1/page/conversations",
              .shape = kOpenAiErrors,
              .handler = [stores](const HttpRequest& request,
                                  HttpResponder& r) { List(stores->store(), request, r); },
              .needs_model = needs_model,
              .is_watched = true});
  const auto add = [&](const char* method, Action action, uint32_t work_bytes_per_byte) {
    router.Add({.method = method,
                .pattern = "/v1/page/conversations/{id}",
                .shape = kOpenAiErrors,
                .handler = [stores, action](
                               const HttpRequest& request,
                               HttpResponder& r) { Act(stores->store(), action, request, r); },
                .needs_model = needs_model,
                .is_watched = true,
                .work_bytes_per_byte = work_bytes_per_byte});
  };
  add("GET", Get, 0);
  add("PUT", Put, 20);
  add("DELETE", Delete, 0);
  router.AddTask("GET", "/v1/page/sessions/{id}", kOpenAiErrors,
                 [&host](const HttpRequest& request, HttpResponder& responder) {
                   return ShowSession(host, request, responder);
                 });
}

}  // namespace weft::serve
