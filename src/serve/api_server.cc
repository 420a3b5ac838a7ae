#include "serve/api_server.h"

#include <string>
#include <utility>

#include "base/strings.h"
#include "formats/model_file.h"
#include "model/model_spec.h"
#include "serve/api_support.h"
#include "serve/llama_request.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// Ready, or the error that llama-server's clients know.
void HandleHealth(Host& host, HttpResponder& responder) {
  if (host.phase() == Phase::kReady) return SendJson(responder, {{"status", "ok"}});
  ApiError error;
  error.http_status = 503;
  error.type = "unavailable_error";
  error.message = host.phase_reason();
  SendError(responder, error, ErrorShape::kLlama);
}

void HandleMetrics(Host& host, HttpResponder& responder) {
  constexpr std::string_view kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
  const HttpHeaders headers = {{"Process-Start-Time-Unix", StrCat(host.created_s())}};
  if (host.phase() != Phase::kReady) {
    return responder.Send(200, kTextFormat, host.metrics().Render(nullptr), headers);
  }
  const EngineStats stats = host.engine().Stats();
  responder.Send(200, kTextFormat, host.metrics().Render(&stats), headers);
}

// --- models --------------------------------------------------------------------------

int64_t CountParameters(const ModelFile& file) {
  int64_t n = 0;
  for (const TensorInfo& tensor : file.tensors()) n += tensor.values();
  return n;
}

int64_t CountBytes(const ModelFile& file) {
  size_t n = 0;
  for (const TensorInfo& tensor : file.tensors()) n += tensor.data.size();
  return static_cast<int64_t>(n);
}

// llama-server's numbers for kinds of vocabularies.
int VocabularyType(std::string_view model_name) {
  if (model_name == "llama") return 1;
  return model_name == "bert" ? 3 : 2;
}

// In one object what the clients of OpenAI, llama-server and Anthropic look for.
Json ModelObject(Host& host) {
  const Model& model = host.model();
  return {{"id", host.model_id()},
          {"object", "model"},
          {"created", host.created_s()},
          {"owned_by", "llamacpp"},
          {"aliases", Json::array({host.model_id()})},
          {"tags", Json::array()},
          {"type", "model"},
          {"display_name", host.model_id()},
          {"meta",
           {{"vocab_type", VocabularyType(model.tokenizer()->model_name())},
            {"n_vocab", model.n_vocab()},
            {"n_ctx", model.context_tokens()},
            {"n_ctx_train", model.spec().context_tokens},
            {"n_embd", model.spec().d_model},
            {"n_params", CountParameters(model.file())},
            {"size", CountBytes(model.file())}}}};
}

void HandleModels(Host& host, HttpResponder& responder) {
  const Json local = {{"name", host.model_id()},
                      {"model", host.model_id()},
                      {"type", "model"},
                      {"capabilities", Json::array({"completion"})}};
  SendJson(responder, {{"object", "list"},
                       {"data", Json::array({ModelObject(host)})},
                       {"models", Json::array({local})},
                       {"has_more", false},
                       {"first_id", host.model_id()},
                       {"last_id", host.model_id()}});
}

void HandleModel(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const Status status = FindModel(host, request.path_arguments[0]);
  if (!status.ok()) return SendError(responder, status, ErrorShape::kOpenAi);
  SendJson(responder, ModelObject(host));
}

// --- llama-server's view of the whole --------------------------------------------------

// As a completion has them that says nothing; the web interfaces of llama-server show them.
Json DefaultParams(Host& host) {
  LlamaCompletion completion{.stream = true};
  completion.turn.sampling = host.defaults().sampling;
  const auto& seed = completion.turn.sampling.seed;
  return LlamaSettings(completion, seed.has_value() ? Json(*seed) : Json(-1),
                       *host.model().tokenizer());
}

// A place for a running turn: which of them a conversation has is of no meaning.
Json Slot(const Host& host, const Model& model, int id, bool busy) {
  return {{"id", id},
          {"id_task", busy ? id : -1},
          {"n_ctx", model.context_tokens()},
          {"speculative", false},
          {"is_processing", busy}};
}

void HandleProps(Host& host, HttpResponder& responder) {
  const Model& model = host.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  const ChatFormat& chat = host.chat();
  Json settings = Slot(host, model, 0, false);
  settings["params"] = DefaultParams(host);
  const auto text = [&](TokenId id) {
    return id == kNoToken ? std::string() : tokenizer.Piece(id, /*render_special=*/true);
  };
  SendJson(responder, {{"default_generation_settings", std::move(settings)},
                       {"total_slots", host.engine().options().max_running},
                       {"model_alias", host.model_id()},
                       {"model_path", model.path()},
                       {"modalities", {{"vision", false}, {"audio", false}}},
                       {"media_marker", ""},
                       {"endpoint_slots", true},
                       {"endpoint_props", false},
                       {"endpoint_metrics", true},
                       {"chat_template", chat.chat_template().source()},
                       {"chat_template_caps",
                        {{"supports_tools", chat.template_has_tools()},
                         {"supports_tool_calls", chat.template_has_tools()},
                         {"supports_system_role", true},
                         {"supports_preserve_reasoning", chat.has_reasoning()}}},
                       {"reply_format", chat.reply_format()},
                       {"tool_calls", host.defaults().lenient_tool_calls ? "lenient" : "strict"},
                       {"bos_token", text(tokenizer.bos())},
                       {"eos_token", text(tokenizer.eos())},
                       {"build_info", "weft-" WEFT_VERSION},
                       {"is_sleeping", false}});
}

void HandleSlots(Host& host, const HttpRequest& request, HttpResponder& responder) {
  const EngineStats stats = host.engine().Stats();
  const int total = host.engine().options().max_running;
  const auto refuses = request.query.find("fail_on_no_slot");
  if (refuses != request.query.end() && refuses->second == "1" && stats.turns_running >= total) {
    return SendError(responder, ToApiError(Unavailable("no slot is free")), ErrorShape::kLlama);
  }
  Json slots = Json::array();
  for (int i = 0; i < total; ++i) {
    slots.push_back(Slot(host, host.model(), i, i < stats.turns_running));
  }
  SendJson(responder, slots);
}

}  // namespace

void RegisterServerApi(Router& router, Host& host) {
  for (const char* const path : {"/health", "/v1/health"}) {
    router.Add({.method = "GET",
                .pattern = path,
                .shape = ErrorShape::kLlama,
                .handler = [&host](const HttpRequest&,
                                   HttpResponder& responder) { HandleHealth(host, responder); },
                .needs_model = false,
                .is_public = true});
  }
  router.Add({.method = "GET",
              .pattern = "/metrics",
              .shape = ErrorShape::kLlama,
              .handler = [&host](const HttpRequest&,
                                 HttpResponder& responder) { HandleMetrics(host, responder); },
              .needs_model = false});
  // Clients look here, often without the key, to find out what they talk to.
  for (const char* const path : {"/v1/models", "/models"}) {
    router.Add({.method = "GET",
                .pattern = path,
                .handler = [&host](const HttpRequest&,
                                   HttpResponder& responder) { HandleModels(host, responder); },
                .is_public = true});
  }
  router.Add("GET", "/v1/models/{id}", ErrorShape::kOpenAi,
             [&host](const HttpRequest& request, HttpResponder& responder) {
               HandleModel(host, request, responder);
             });
  router.Add(
      "GET", "/props", ErrorShape::kLlama,
      [&host](const HttpRequest&, HttpResponder& responder) { HandleProps(host, responder); });
  router.Add("GET", "/slots", ErrorShape::kLlama,
             [&host](const HttpRequest& request, HttpResponder& responder) {
               HandleSlots(host, request, responder);
             });
  const auto refuse = [&router](const char* path, const char* why) {
    router.Add("POST", path, ErrorShape::kLlama,
               [why](const HttpRequest&, HttpResponder& responder) {
                 SendError(responder, ToApiError(Unimplemented(why)), ErrorShape::kLlama);
               });
  };
  refuse("/props", "properties cannot be changed while the server runs");
  refuse("/slots/{id}",
         "slots hold no conversations here; use /v1/sessions/{id}/park and /restore to keep one");
}

}  // namespace weft::serve
