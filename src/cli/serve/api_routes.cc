#include "cli/serve/api_routes.h"

#include "cli/serve/models_at_hand.h"
#include "doors/api/anthropic/routes.h"
#include "doors/api/llama/routes.h"
#include "doors/api/llama/slots.h"
#include "doors/api/openai/routes.h"
#include "doors/api/page/conversation_routes.h"
#include "doors/api/page/page.h"
#include "doors/api/responses/routes.h"
#include "doors/api/server/info.h"
#include "doors/api/server/local_models.h"
#include "doors/api/server/routes.h"
#include "doors/api/sessions/routes.h"

namespace weft::cli {

void RegisterApis(const ServeFlags& flags, const ApiParts& parts, serve::Host& host,
                  serve::Router& router) {
  const bool is_of_a_model = !parts.conversations.has_value();
  serve::RegisterServerApi(router, host,
                           {.metrics = flags.server.metrics,
                            .slots = flags.server.slots,
                            .loaded_percent = parts.loaded_percent});
  serve::RegisterSlotsApi(router, host, flags.server.slot_save_path);
  serve::RegisterInfoApi(router, host);
  serve::RegisterSessionsApi(router, host);
  serve::RegisterLlamaApi(router, host);
  serve::RegisterOpenAiApi(router, host);
  serve::RegisterAnthropicApi(router, host);
  serve::RegisterResponsesApi(router, host);
  serve::RegisterChannelApi(router, host, parts.channels, is_of_a_model);
  serve::RegisterConversationsApi(router, host, parts.conversations);
  if (flags.server.page) serve::RegisterPage(router, {.mcp_urls = flags.page_mcp});
  serve::RegisterOllamaApi(router, host, parts.pull);
}

void RegisterModelsAtHand(const ServeFlags& flags, const std::string& served_path,
                          serve::Router& router) {
  serve::RegisterLocalModelsApi(router, [&flags, served_path] {
    return serve::ModelChoice{
        .local = ModelsAtHand(flags.model.models_folder, served_path,
                              AddressFlags(flags.server.host, flags.server.port)),
        .known = KnownModelsAtHand()};
  });
}

}  // namespace weft::cli
