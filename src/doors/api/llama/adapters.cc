// llama-server's /lora-adapters: the adapters, and how strongly each acts where a request says
// nothing.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "doors/api/fields/adapters.h"
#include "doors/api/fields/support.h"
#include "doors/api/llama/routes.h"
#include "json/json_fields.h"
#include "weft/model.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

// In llama-server's words. Adapters are listed while the model is loading, too.
void AddInvocation(const Host& host, const std::string& name, Json* entry) {
  if (host.phase() != Phase::kReady) return;
  for (const LoadedAdapter& adapter : host.model().adapters()) {
    const std::vector<int32_t>& tokens = adapter.invocation_tokens;
    if (adapter.name != name || tokens.empty()) continue;
    (*entry)["alora_invocation_string"] = host.model().Decode(tokens, /*render_special=*/true);
    (*entry)["alora_invocation_tokens"] = tokens;
  }
}

Json ListOf(const Host& host) {
  Json list = Json::array();
  const auto& adapters = host.defaults().adapters;
  if (adapters == nullptr) return list;
  for (const Adapters::Adapter& adapter : adapters->List()) {
    list.push_back({{"id", std::ssize(list)},
                    {"path", adapter.file_name},
                    {"scale", adapter.scale},
                    {"name", adapter.name}});
    AddInvocation(host, adapter.name, &list.back());
  }
  return list;
}

Status SetDefaults(const Host& host, const HttpRequest& request) {
  if (!request.is_operators) {
    return absl::PermissionDeniedError(
        "scales cannot be changed with one of several keys: they are everybody's; use the field "
        "lora of a request");
  }
  WEFT_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body, {}));
  WEFT_ASSIGN_OR_RETURN(const auto choices, ReadAdapterChoices(body, "the body"));
  const auto& adapters = host.defaults().adapters;
  if (adapters != nullptr) return adapters->SetDefaults(choices);
  if (choices.empty()) return OkStatus();
  return InvalidArgument("no adapters are loaded; start with --lora NAME=FILE");
}

}  // namespace

void RegisterAdapterRoutes(Router& router, Host& host) {
  router.AddQuick(
      "GET", "/lora-adapters", kLlamaErrors,
      [&host](const HttpRequest&, HttpResponder& responder) { SendJson(responder, ListOf(host)); });
  router.AddQuick("POST", "/lora-adapters", kLlamaErrors,
                  [&host](const HttpRequest& request, HttpResponder& responder) {
                    const Status status = SetDefaults(host, request);
                    if (!status.ok()) return SendError(responder, status, kLlamaErrors);
                    SendJson(responder, {{"success", true}});
                  });
}

}  // namespace weft::serve
