#include "api/server/local_models.h"

#include <utility>

#include "api/fields/support.h"

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

void HandleLocalModels(const ListLocalModels& list, const HttpRequest& request,
                       HttpResponder& responder) {
  if (!request.is_operators) {
    return SendError(
        responder,
        MakeError(403, "permission_error", "only the operator may list the models on this machine"),
        kOpenAiErrors);
  }
  Json data = Json::array();
  for (const LocalModelCard& card : list()) data.push_back(CardObject(card));
  SendJson(responder, {{"object", "list"}, {"data", std::move(data)}});
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
