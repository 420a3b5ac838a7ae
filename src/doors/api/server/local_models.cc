#include "doors/api/server/local_models.h"

#include <utility>

#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

Json CardObject(const LocalModelCard& card) {
  Json object = {{"id", card.name},       {"object", "local_model"},  {"where", card.where},
                 {"bytes", card.n_bytes}, {"served", card.is_served}, {"command", card.command}};
  if (!card.problem.empty()) {
    object["error"] = card.problem;
    return object;
  }
  object["title"] = card.title;
  object["architecture"] = card.architecture;
  object["quantization"] = card.quantization;
  object["parameters"] = card.n_parameters;
  object["context_tokens"] = card.context_tokens;
  object["session"] = {{"tokens", card.session_tokens}, {"bytes", card.session_bytes}};
  return object;
}

Json KnownObject(const KnownModelCard& card) {
  return {{"id", card.name},
          {"use", card.use},
          {"about", card.about},
          {"license", card.license},
          {"bytes", card.n_bytes},
          {"context_tokens", card.context_tokens},
          {"session", {{"tokens", card.session_tokens}, {"bytes", card.session_bytes}}},
          {"sessions_that_fit", card.sessions_that_fit},
          {"command", card.command}};
}

void HandleLocalModels(const ListLocalModels& list, const HttpRequest& request,
                       HttpResponder& responder) {
  if (!request.is_operators) {
    return SendError(
        responder,
        MakeError(403, "permission_error", "only the operator may list the models on this machine"),
        kOpenAiErrors);
  }
  const ModelChoice choice = list();
  Json data = Json::array(), known = Json::array();
  for (const LocalModelCard& card : choice.local) data.push_back(CardObject(card));
  for (const KnownModelCard& card : choice.known) known.push_back(KnownObject(card));
  SendJson(responder, {{"object", "list"}, {"data", std::move(data)}, {"known", std::move(known)}});
}

}  // namespace

void RegisterLocalModelsApi(Router& router, ListLocalModels list) {
  router.Add({.method = "GET",
              .pattern = "/v1/models/local",
              .handler =
                  [list = std::move(list)](const HttpRequest& request, HttpResponder& responder) {
                    HandleLocalModels(list, request, responder);
                  },
              .needs_model = false,
              .is_operators = true});
}

}  // namespace weft::serve
