#include "cli/serve/api_routes.h"

#include "api/anthropic/routes.h"
#include "api/llama/routes.h"
#include "api/llama/slots.h"
#include "api/openai/routes.h"
#include "api/page/conversation_routes.h"
#include "api/page/page.h"
#include "api/responses/routes.h"
#include "api/server/info.h"
#include "api/server/local_models.h"
#include "api/server/routes.h"
#include "api/sessions/routes.h"
#include "cli/serve/models_at_hand.h"

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
