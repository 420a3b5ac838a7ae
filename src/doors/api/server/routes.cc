#include "doors/api/server/routes.h"

#include <string>
#include <utility>
#include <vector>

#include "answer/pictures.h"
#include "base/strings.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/request.h"
#include "doors/host/model_host.h"
#include "model/formats/model_facts.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Ready, or the error that llama-server's clients know.
void HandleHealth(Host& host, const std::function<int()>& loaded_percent,
                  HttpResponder& responder) {
  const Status may_begin = host.MayBegin();
  if (may_begin.ok()) {
    const EngineStats stats = host.engine().Stats();
    if (!stats.store_problem.empty()) {
      return SendJson(responder, {{"status", "degraded"},
                                  {"reason",
                                   "the shared store does not answer: turns of named "
                                   "sessions fail"}});
    }
    if (stats.sessions_unsaved == 0) return SendJson(responder, {{"status", "ok"}});
    // It answers, so that nothing should take it out of service.
    return SendJson(responder, {{"status", "degraded"},
                                {"reason", StrCat("sessions cannot be saved (", stats.save_problem,
                                                  "): a restart would lose their last turns")}});
  }
  ApiError error;
  error.http_status = 503;
  error.type = "unavailable_error";
  error.message = Message(may_begin);
  if (host.phase() == Phase::kLoading && loaded_percent) {
    error.more = {{"loaded_percent", loaded_percent()}};
  }
  SendError(responder, error, kLlamaErrors);
}

void HandleMetrics(Host& host, const HttpRequest& request, HttpResponder& responder) {
  constexpr std::string_view kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
  const HttpHeaders headers = {{"Process-Start-Time-Unix", StrCat(host.created_s())}};
  if (!request.is_operators) {
    std::vector<SessionInfo> sessions;
    if (host.phase() == Phase::kReady) {
      auto own = host.engine().ListSessions(request.domain);
      if (own.ok()) sessions = *std::move(own);
    }
    return responder.Send(200, kTextFormat, host.metrics().RenderOwn(request.domain, sessions),
                          headers);
  }
  if (host.phase() != Phase::kReady) {
    return responder.Send(200, kTextFormat, host.metrics().Render(nullptr), headers);
  }
  responder.Send(200, kTextFormat, TextOf(OperatorMetrics(host)), headers);
}

// --- models --------------------------------------------------------------------------

// llama-server's numbers for vocabulary types.
int VocabularyType(std::string_view model_name) {
  if (model_name == "llama") return 1;
  return model_name == "bert" ? 3 : 2;
}

Json Names(const Host& host) {
  Json names = Json::array({host.model_id()});
  const std::string name(host.model().name());
  if (name != host.model_id()) names.push_back(name);
  for (const std::string& further : host.defaults().further_names) names.push_back(further);
  return names;
}

constexpr char kOwner[] = "weft";

Json Capabilities(Host& host) {
  const ModelUses uses = host.model().uses();
  Json list = Json::array();
  if (uses.text) list.push_back("completion");
  if (uses.vectors) list.push_back("embedding");
  if (uses.scores) list.push_back("rerank");
  if (host.answerer().sees()) list.push_back("multimodal");
  return list;
}

Json Modalities(Host& host) {
  Json list = Json::array({"text"});
  if (host.answerer().sees()) list.push_back("image");
  return list;
}

}  // namespace

MetricFamilies OperatorMetrics(Host& host) {
  const EngineStats stats = host.engine().Stats();
  PictureStats pictures;
  if (host.answerer().sees()) pictures = host.answerer().pictures()->stats();
  return host.metrics().Collect(&stats, &pictures);
}

Json ModelObject(Host& host, const char* owner) {
  const Model& model = host.model();
  const ModelFacts facts = FactsOf(model.file());
  const int64_t most = host.defaults().max_tokens;
  return {{"id", host.model_id()},
          {"object", "model"},
          {"created", host.created_s()},
          {"created_at", UtcTime(host.created_s() * 1'000'000)},
          {"owned_by", owner},
          {"root", ModelFileName(model)},
          // The context, as clients of vLLM, OpenRouter, Groq and Anthropic look for it.
          {"max_model_len", model.context_tokens()},
          {"context_length", model.context_tokens()},
          {"context_window", model.context_tokens()},
          {"max_input_tokens", model.context_tokens()},
          {"max_tokens", most >= 0 ? most : model.context_tokens()},
          {"aliases", Names(host)},
          {"tags", Json::array()},
          {"input_modalities", Modalities(host)},
          {"type", "model"},
          {"name", host.model_id()},
          {"display_name", host.model_id()},
          {"meta",
           {{"vocab_type", VocabularyType(model.tokenizer()->model_name())},
            {"n_vocab", model.n_vocab()},
            {"n_ctx", model.context_tokens()},
            {"n_ctx_train", model.spec().context_tokens},
            {"n_embd", model.spec().d_model},
            {"n_params", facts.n_parameters},
            {"size", facts.tensor_bytes},
            {"title", facts.title},
            {"quantization", facts.quantization}}}};
}

Json AdapterObjects(Host& host, const char* owner) {
  Json objects = Json::array();
  const auto& adapters = host.defaults().adapters;
  if (adapters == nullptr) return objects;
  for (const Adapters::Adapter& adapter : adapters->List()) {
    Json object = ModelObject(host, owner);
    const std::string id = StrCat(host.model_id(), ":", adapter.name);
    for (const char* const key : {"id", "name", "display_name"}) object[key] = id;
    object["root"] = adapter.file_name;
    object["parent"] = host.model_id();
    object["aliases"] = Json::array({id, adapter.name});
    objects.push_back(std::move(object));
  }
  return objects;
}

Json ModelEntry(Host& host) {
  return {{"name", host.model_id()},
          {"model", host.model_id()},
          {"type", "model"},
          {"capabilities", Capabilities(host)}};
}

// The paths without a version are only llama-server's.
const char* OwnerFor(const HttpRequest& request) {
  return request.path.starts_with("/models") ? "llamacpp" : kOwner;
}

namespace {

void HandleModels(Host& host, const HttpRequest& request, HttpResponder& responder) {
  Json data = Json::array({ModelObject(host, OwnerFor(request))});
  for (Json& object : AdapterObjects(host, OwnerFor(request))) data.push_back(std::move(object));
  const Json last = data.back()["id"];
  SendJson(responder, {{"object", "list"},
                       {"data", std::move(data)},
                       {"models", Json::array({ModelEntry(host)})},
                       {"has_more", false},
                       {"first_id", host.model_id()},
                       {"last_id", last}});
}

void HandleModel(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const Status status = FindModel(host, request.path_arguments[0]);
  if (!status.ok()) return SendError(responder, status, kOpenAiErrors);
  for (const Json& object : AdapterObjects(host, OwnerFor(request))) {
    for (const Json& name : object["aliases"]) {
      if (name == request.path_arguments[0]) return SendJson(responder, object);
    }
  }
  SendJson(responder, ModelObject(host, OwnerFor(request)));
}

// --- llama-server's status routes -------------------------------------------------------

// The parameters of a completion that sets none; llama-server's web interfaces show them.
Json DefaultParams(Host& host) {
  LlamaCompletion completion{.stream = true};
  completion.ask.turn.sampling = host.defaults().sampling;
  completion.ask.turn.stop_strings = host.defaults().ends.texts;
  completion.ask.turn.max_tokens = host.defaults().max_tokens;
  const auto& seed = completion.ask.turn.sampling.seed;
  return LlamaSettings(completion, seed.has_value() ? Json(*seed) : Json(-1),
                       *host.model().tokenizer());
}

// A place for a running turn: which one a conversation gets has no meaning.
Json Slot(Host& host, int id, int64_t task) {
  return {{"id", id},
          {"id_task", task},
          {"n_ctx", host.model().context_tokens()},
          {"speculative", host.engine().options().speculation != Speculation::kOff},
          {"is_processing", task >= 0}};
}

// A turn's progress. For another key's turn only its existence is shown.
void AddProgress(const TurnInfo& turn, Json* slot) {
  (*slot)["n_prompt_tokens"] = turn.prompt_tokens;
  (*slot)["n_prompt_tokens_processed"] = turn.done_tokens - turn.cached_tokens;
  (*slot)["n_prompt_tokens_cache"] = turn.cached_tokens;
  const bool bounded = turn.max_tokens >= 0;
  (*slot)["next_token"] =
      Json::array({{{"has_next_token", true},
                    {"has_new_line", false},
                    {"n_remain", bounded ? turn.max_tokens - turn.generated_tokens : int64_t{-1}},
                    {"n_decoded", turn.generated_tokens}}});
  (*slot)["state"] = NameOf(turn.stage);
  if (!turn.session_name.empty()) (*slot)["session_id"] = turn.session_name;
  (*slot)["prompt_progress"] = {{"total", turn.prompt_tokens},
                                {"cache", turn.cached_tokens},
                                {"processed", turn.done_tokens},
                                {"time_ms", turn.prompt_us / 1000},
                                {"tokens_per_second", turn.PromptTokensPerSecond()},
                                {"seconds_left", turn.PromptSecondsLeft()},
                                {"waits_behind_tokens", turn.waits_behind_tokens}};
}

// Null where there is none, or where the model's own prediction head drafts.
Json DraftModelName(Host& host) {
  const auto& draft = host.engine().options().draft_model;
  return draft != nullptr && &draft->file() != &host.model().file() ? Json(ModelFileName(*draft))
                                                                    : Json();
}

bool DraftsByHead(Host& host) {
  const auto& draft = host.engine().options().draft_model;
  return draft != nullptr && draft->spec().hidden_input.has_value();
}

// What becomes of reasoning of earlier turns here, if a request does not say.
Json PastThoughtsHere(Host& host) {
  const auto variable = host.chat().past_thoughts();
  const bool cleared =
      variable && PastThoughtsIn(host.defaults().thinking.variables) == PastThoughts::kClear;
  return PastThoughtsJson(host.chat().shows_past_thoughts() && !cleared, variable);
}

void HandleProps(Host& host, const ServerApiOptions& options, HttpResponder& responder) {
  const Model& model = host.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  const ChatFormat& chat = host.chat();
  Json settings = Slot(host, 0, /*task=*/-1);
  settings["params"] = DefaultParams(host);
  const auto text = [&](TokenId id) {
    return id == kNoToken ? std::string() : tokenizer.Piece(id, /*render_special=*/true);
  };
  SendJson(responder,
           {{"default_generation_settings", std::move(settings)},
            {"total_slots", host.engine().options().max_running},
            {"model_alias", host.model_id()},
            {"model_path", ModelFileName(model)},
            {"draft_model", DraftModelName(host)},
            {"prediction_head", DraftsByHead(host)},
            {"modalities", {{"vision", host.answerer().sees()}, {"audio", false}}},
            {"media_marker", host.answerer().sees() ? kMediaMarker : ""},
            {"endpoint_slots", options.slots},
            {"endpoint_props", false},
            {"endpoint_metrics", options.metrics},
            {"chat_template", chat.chat_template().source()},
            {"chat_template_caps",
             {{"supports_tools", chat.template_has_tools()},
              {"supports_tool_calls", chat.template_has_tools()},
              {"supports_system_role", true},
              {"supports_preserve_reasoning", chat.shows_past_thoughts()}}},
            {"past_thoughts", PastThoughtsHere(host)},
            {"reply_format", chat.reply_format()},
            {"tool_calls", host.defaults().server.lenient_tool_calls ? "lenient" : "strict"},
            {"tool_calls_held", host.defaults().server.hold_calls},
            {"bos_token", text(tokenizer.bos())},
            {"eos_token", text(tokenizer.eos())},
            {"backend", model.backend_name()},
            {"same_bits", model.same_bits()},
            {"build_info", "weft-" WEFT_VERSION},
            {"is_sleeping", false}});
}

void HandleSlots(Host& host, const HttpRequest& request, HttpResponder& responder) {
  std::vector<TurnInfo> turns = host.engine().Turns();
  std::erase_if(turns, [](const TurnInfo& turn) { return turn.stage == TurnInfo::Stage::kQueued; });
  const auto total = static_cast<size_t>(host.engine().options().max_running);
  const auto refuses = request.query.find("fail_on_no_slot");
  if (refuses != request.query.end() && refuses->second == "1" && turns.size() >= total) {
    return SendError(responder, ToApiError(Unavailable("no slot is free")), kLlamaErrors);
  }
  Json slots = Json::array();
  for (size_t i = 0; i < total; ++i) {
    const bool busy = i < turns.size();
    Json slot = Slot(host, static_cast<int>(i), busy ? static_cast<int64_t>(turns[i].id) : -1);
    if (busy && turns[i].domain == request.domain) AddProgress(turns[i], &slot);
    slots.push_back(std::move(slot));
  }
  SendJson(responder, slots);
}

// What an operator may switch off.
void AddOperatorsRoutes(Router& router, Host& host, const ServerApiOptions& options) {
  const auto refuse = [&router](const char* method, const char* path, const char* why) {
    router.Add(method, path, kLlamaErrors, [why](const HttpRequest&, HttpResponder& responder) {
      SendError(responder, ToApiError(Unimplemented(why)), kLlamaErrors);
    });
  };
  if (options.metrics) {
    router.Add(
        {.method = "GET",
         .pattern = "/metrics",
         .shape = kLlamaErrors,
         .handler = [&host](const HttpRequest& request,
                            HttpResponder& responder) { HandleMetrics(host, request, responder); },
         .needs_model = false,
         .is_quick = true,
         .is_operators = true,
         .is_watched = true});
  } else {
    refuse("GET", "/metrics", "metrics are turned off here");
  }
  if (options.slots) {
    router.Add(
        {.method = "GET",
         .pattern = "/slots",
         .shape = kLlamaErrors,
         .handler = [&host](const HttpRequest& request,
                            HttpResponder& responder) { HandleSlots(host, request, responder); },
         .is_quick = true,
         .is_watched = true});
  } else {
    refuse("GET", "/slots", "slots are turned off here");
  }
  refuse("POST", "/props", "properties cannot be changed while the server runs");
}

}  // namespace

void RegisterServerApi(Router& router, Host& host, const ServerApiOptions& options) {
  for (const char* const path : {"/health", "/v1/health"}) {
    router.Add(
        {.method = "GET",
         .pattern = path,
         .shape = kLlamaErrors,
         .handler = [&host, percent = options.loaded_percent](
                        const HttpRequest&,
                        HttpResponder& responder) { HandleHealth(host, percent, responder); },
         .needs_model = false,
         .is_public = true,
         .is_quick = true,
         .is_watched = true});
  }
  // Clients look here, often without the key, to identify the server.
  for (const char* const path : {"/v1/models", "/models"}) {
    router.Add(
        {.method = "GET",
         .pattern = path,
         .handler = [&host](const HttpRequest& request,
                            HttpResponder& responder) { HandleModels(host, request, responder); },
         .is_public = true,
         .is_quick = true});
  }
  for (const char* const path : {"/v1/models/{id}", "/models/{id}"}) {
    router.AddQuick("GET", path, kOpenAiErrors,
                    [&host](const HttpRequest& request, HttpResponder& responder) {
                      HandleModel(host, request, responder);
                    });
  }
  router.AddQuick("GET", "/props", kLlamaErrors,
                  [&host, options](const HttpRequest&, HttpResponder& responder) {
                    HandleProps(host, options, responder);
                  });
  AddOperatorsRoutes(router, host, options);
}

}  // namespace weft::serve
