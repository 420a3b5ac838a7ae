// The HTTP server with all its APIs over a scripted model, for tests with the clients of those
// APIs. See scripted_host.h for the scripts.
//
//   scripted_server [MAX_RUNNING [MAX_QUEUED [CONTEXT [PING_MS]]]]
//
// With PING_MS, streams begin at once and send a ping at that interval. Coding agents, whose first
// prompt has 20,000 tokens and more, need a large CONTEXT. $WEFT_SCRIPTED_STATE_DIR is the state
// directory, $WEFT_SCRIPTED_PAGE_MCP the page's MCP server; unset: none. Prints one line,
// "listening on http://127.0.0.1:PORT", and stops when its standard input ends.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "doors/api/anthropic/routes.h"
#include "doors/api/front_door.h"
#include "doors/api/llama/routes.h"
#include "doors/api/llama/slots.h"
#include "doors/api/ollama/routes.h"
#include "doors/api/openai/routes.h"
#include "doors/api/page/channel.h"
#include "doors/api/page/conversation_routes.h"
#include "doors/api/page/page.h"
#include "doors/api/responses/routes.h"
#include "doors/api/server/info.h"
#include "doors/api/server/routes.h"
#include "doors/api/sessions/routes.h"
#include "doors/http/router.h"
#include "doors/http/server.h"
#include "tests/support/scripted_host.h"

namespace weft {
namespace {

Status Run(const EngineOptions& options, int64_t context, const serve::RequestDefaults& defaults) {
  WEFT_ASSIGN_OR_RETURN(const auto model,
                        testing::ScriptedModel::Start(options, context, "llama", defaults));
  serve::Host& host = model->host();
  serve::Router router;
  serve::RegisterServerApi(router, host);
  serve::RegisterSlotsApi(router, host, "");
  serve::RegisterInfoApi(router, host);
  serve::RegisterSessionsApi(router, host);
  serve::RegisterLlamaApi(router, host);
  serve::RegisterOpenAiApi(router, host);
  serve::RegisterAnthropicApi(router, host);
  serve::RegisterResponsesApi(router, host);
  serve::RegisterChannelApi(router, host);
  serve::RegisterConversationsApi(router, host);
  serve::PageOptions page;
  if (const char* const url = std::getenv("WEFT_SCRIPTED_PAGE_MCP")) page.mcp_urls = {url};
  serve::RegisterPage(router, page);
  serve::RegisterOllamaApi(router, host);
  serve::FrontDoor door({}, &router, &host);
  serve::HttpServerOptions server_options;
  server_options.port = 0;
  WEFT_ASSIGN_OR_RETURN(const auto server, serve::HttpServer::Start(server_options, door.Hooks()));
  std::printf("listening on http://127.0.0.1:%d\n", server->port());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  server->Shutdown(std::chrono::milliseconds(0));
  return OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::EngineOptions options;
  options.n_threads = 1;
  if (const char* const folder = std::getenv("WEFT_SCRIPTED_STATE_DIR")) options.state_dir = folder;
  if (argc > 1) options.max_running = std::atoi(argv[1]);
  if (argc > 2) options.max_queued = std::atoi(argv[2]);
  const int64_t context = argc > 3 ? std::atoll(argv[3]) : weft::testing::kScriptedContext;
  weft::serve::RequestDefaults defaults{
      .server = {.hold_calls = false}};  // scripts may send any text
  if (argc > 4) {
    defaults.stream_begin = defaults.server.ping_interval =
        std::chrono::milliseconds(std::atoi(argv[4]));
  }
  const weft::Status status = weft::Run(options, context, defaults);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(weft::Message(status)).c_str());
  return 1;
}
