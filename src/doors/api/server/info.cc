#include "doors/api/server/info.h"

#include <string_view>
#include <utility>

#include "doors/api/fields/support.h"
#include "doors/api/server/load_history.h"
#include "doors/host/model_host.h"
#include "doors/host/turn_work.h"
#include "model/hugging_face_names.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

Json TokenText(const Tokenizer& tokenizer, TokenId id) {
  if (id == kNoToken) return nullptr;
  return tokenizer.Piece(id, /*render_special=*/true);
}

// vLLM's: the contents of Hugging Face's tokenizer_config.json. Evaluation tools without a
// tokenizer of their own start here.
Json TokenizerInfo(const HttpRequest&, Host& host) {
  const Model& model = host.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", TokenText(tokenizer, tokenizer.bos())},
          {"eos_token", TokenText(tokenizer, tokenizer.eos())},
          {"pad_token", TokenText(tokenizer, tokenizer.padding())},
          {"unk_token", TokenText(tokenizer, tokenizer.unknown())},
          {"add_bos_token", tokenizer.adds_bos()},
          {"add_eos_token", tokenizer.adds_eos()},
          {"model_max_length", model.context_tokens()},
          {"clean_up_tokenization_spaces", false},
          {"chat_template", host.chat().chat_template().source()}};
}

// A key sees its own turns, the operator everybody's.
TurnCounts LoadFor(const HttpRequest& request, Host& host) {
  if (request.is_operators) {
    const EngineStats stats = host.engine().Stats();
    return {.running = stats.turns_running, .waiting = stats.turns_queued};
  }
  return CountTurns(host.engine().Turns(), request.domain);
}

// SGLang's, like the next ones.
Json ModelInfo(const HttpRequest&, Host& host) {
  const Model& model = host.model();
  const HuggingFaceNames names = HuggingFaceNamesOf(model.file());
  return {{"model_path", ModelFileName(model)},
          {"tokenizer_path", ModelFileName(model)},
          {"is_generation", model.uses().text},
          {"preferred_sampling_params", nullptr},
          {"weight_version", model.fingerprint()},
          {"has_image_understanding", host.answerer().sees()},
          {"has_audio_understanding", false},
          {"model_type", names.model_type},
          {"architectures", Json::array({names.class_name})}};
}

Json ServerInfo(const HttpRequest& request, Host& host) {
  const Model& model = host.model();
  const EngineOptions& options = host.engine().options();
  const TurnCounts load = LoadFor(request, host);
  return {
      {"model_id", host.model_id()},
      {"model_path", ModelFileName(model)},
      {"tokenizer_path", ModelFileName(model)},
      {"served_model_name", host.model_id()},
      {"version", WEFT_VERSION},
      {"status", "ready"},
      {"tp_size", 1},
      {"dp_size", 1},
      {"pp_size", 1},
      {"is_embedding", !model.uses().text},
      {"disaggregation_mode", "null"},
      {"context_length", model.context_tokens()},
      {"max_running_requests", options.max_running},
      {"weight_version", model.fingerprint()},
      {"internal_states",
       Json::array({{{"num_running_reqs", load.running}, {"num_waiting_reqs", load.waiting}}})}};
}

// vLLM's, like the next one.
Json ServerLoad(const HttpRequest& request, Host& host) {
  const TurnCounts load = LoadFor(request, host);
  return {{"server_load", load.running + load.waiting}};
}

Json Version(const HttpRequest&, Host&) { return {{"version", WEFT_VERSION}}; }

}  // namespace

void RegisterInfoApi(Router& router, Host& host) {
  const auto add = [&](const char* path, Json (*tell)(const HttpRequest&, Host&),
                       bool needs_model) {
    router.Add({.method = "GET",
                .pattern = path,
                .handler =
                    [&host, tell](const HttpRequest& request, HttpResponder& responder) {
                      SendJson(responder, tell(request, host));
                    },
                .needs_model = needs_model,
                .is_quick = true});
  };
  add("/tokenizer_info", TokenizerInfo, true);
  add("/model_info", ModelInfo, true);
  add("/get_model_info", ModelInfo, true);
  add("/server_info", ServerInfo, true);
  add("/get_server_info", ServerInfo, true);
  add("/load", ServerLoad, true);
  add("/version", Version, false);
  RegisterLoadHistory(router, host);
}

}  // namespace weft::serve
