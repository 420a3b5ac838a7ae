#include "cli/top/server_view.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/strings.h"
#include "doors/http/client.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kPatience{10'000};

Json Parsed(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

int64_t Number(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number() ? it->get<int64_t>() : 0;
}

std::string Text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? Printable(it->get<std::string>(), 200) : "";
}

// The body of a successful answer.
StatusOr<std::string> Get(const ServerAddress& address, std::string path) {
  WEFT_ASSIGN_OR_RETURN(serve::HttpAnswer answer, serve::CallHttp({.server = address.url,
                                                                   .path = std::move(path),
                                                                   .api_key = address.api_key,
                                                                   .timeout = kPatience}));
  if (answer.status == 200) return std::move(answer.body);
  const Json body = Parsed(answer.body);
  std::string message = StrCat("the server answered ", answer.status);
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    message = Text(body["error"], "message");
  }
  return FailedPrecondition(Printable(message, 500));
}

ConversationView TurnView(const Json& slot) {
  ConversationView view = {.name = Text(slot, "session_id"), .state = Text(slot, "state")};
  view.prompt_tokens = Number(slot, "n_prompt_tokens");
  view.found_tokens = Number(slot, "n_prompt_tokens_cache");
  const auto next = slot.find("next_token");
  if (next != slot.end() && next->is_array() && !next->empty() && next->front().is_object()) {
    view.written_tokens = Number(next->front(), "n_decoded");
  }
  const auto progress = slot.find("prompt_progress");
  if (progress != slot.end() && progress->is_object()) {
    view.done_tokens = Number(*progress, "processed");
    view.waits_behind_tokens = Number(*progress, "waits_behind_tokens");
    view.seconds_left = static_cast<double>(Number(*progress, "seconds_left"));
  }
  view.tokens = view.prompt_tokens + view.written_tokens;
  return view;
}

}  // namespace

std::vector<ModelView> ModelsIn(std::string_view models) {
  std::vector<ModelView> all;
  const Json list = Parsed(models);
  const Json data = list.is_object() && list.contains("data") ? list["data"] : Json::array();
  for (const Json& object : data.is_array() ? data : Json::array()) {
    if (!object.is_object()) continue;
    const std::string name = Text(object, "id"), parent = Text(object, "parent");
    if (object.contains("status") && object["status"].is_object()) {
      all.push_back({.name = name,
                     .state = Text(object["status"], "value"),
                     .memory_bytes = Number(object, "memory_bytes"),
                     .requests = Number(object, "requests")});
    } else if (!all.empty() && parent == all.back().name) {
      all.back().adapters.push_back(name.substr(std::min(name.size(), parent.size() + 1)));
    }
  }
  return all;
}

void AddTurns(std::string_view slots, const std::string& model, ServerView* view) {
  const Json turns = Parsed(slots);
  for (const Json& slot : turns.is_array() ? turns : Json::array()) {
    if (!slot.is_object() || !slot.value("is_processing", false)) continue;
    if (!slot.contains("state")) {
      ++view->others_running;
      continue;
    }
    view->conversations.push_back(TurnView(slot));
    view->conversations.back().model = model;
  }
}

void AddIdle(std::string_view sessions, ServerView* view) {
  std::set<std::pair<std::string, std::string>> running;
  for (const ConversationView& turn : view->conversations) running.emplace(turn.model, turn.name);
  const Json list = Parsed(sessions);
  const Json data = list.is_object() && list.contains("data") ? list["data"] : Json::array();
  std::vector<ConversationView> idle;
  for (const Json& session : data.is_array() ? data : Json::array()) {
    if (!session.is_object()) continue;
    ConversationView one = {.name = Text(session, "id"),
                            .state = Text(session, "state"),
                            .model = Text(session, "model"),
                            .tokens = Number(session, "tokens"),
                            .idle_ms = Number(session, "idle_ms")};
    if (!running.contains({one.model, one.name})) idle.push_back(std::move(one));
  }
  std::ranges::stable_sort(idle, {}, &ConversationView::idle_ms);
  view->conversations.insert(view->conversations.end(), idle.begin(), idle.end());
}

StatusOr<std::string> FetchModelName(const ServerAddress& address) {
  WEFT_ASSIGN_OR_RETURN(const std::string models, Get(address, "/v1/models"));
  const size_t n_models = ModelsIn(models).size();
  if (n_models > 0) return StrCat(n_models, n_models == 1 ? " model" : " models");
  const Json list = Parsed(models);
  const bool has_one = list.is_object() && list.contains("data") && list["data"].is_array() &&
                       !list["data"].empty() && list["data"].front().is_object();
  if (!has_one) {
    return FailedPrecondition("cannot understand the server's answer; is it a weft server?");
  }
  return Text(list["data"].front(), "id");
}

StatusOr<ServerView> FetchServerView(const ServerAddress& address) {
  ServerView view;
  // Servers may keep figures and turns from a key, or from everybody.
  const auto metrics = Get(address, "/metrics");
  if (metrics.ok()) {
    auto figures = ParseFigures(*metrics);
    if (figures.ok()) view.figures = *figures;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string models, Get(address, "/v1/models"));
  view.models = ModelsIn(models);
  if (view.models.empty()) {
    const auto slots = Get(address, "/slots");
    if (slots.ok()) AddTurns(*slots, "", &view);
  }
  for (const ModelView& model : view.models) {
    if (model.state != "loaded") continue;
    // It may have been unloaded since.
    const auto slots = Get(address, StrCat("/slots?model=", serve::PercentEncode(model.name)));
    if (slots.ok()) AddTurns(*slots, model.name, &view);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string sessions, Get(address, "/v1/sessions"));
  AddIdle(sessions, &view);
  return view;
}

}  // namespace weft::cli
