// Reads and checks the body of an Anthropic message request.
#ifndef WEFT_DOORS_API_ANTHROPIC_REQUEST_H_
#define WEFT_DOORS_API_ANTHROPIC_REQUEST_H_

#include <string>
#include <string_view>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/api/tool_catalog.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class PictureReader;

struct MessagesRequest {
  Ask ask;
  ToolCatalog tools;
  bool stream = false;
  // Anthropic's cache diagnostics: asked for on a first turn, or with an earlier message's id.
  enum class Diagnostics { kNone, kFirstTurn, kCompared };
  Diagnostics diagnostics = Diagnostics::kNone;
  std::vector<std::string> ignored;
  std::vector<std::string> warnings;
};

StatusOr<MessagesRequest> ReadMessages(Host& host, const HttpRequest& request);

// Converts Anthropic's `system` and `messages`: tool results become separate messages, tool uses
// become calls, thinking becomes reasoning, documents and search results become text. Deferred
// `tools` that the messages name are offered. Blocks about tools that ran on Anthropic's servers
// and images of tool results that the model cannot see are left out; `warnings` says so. If given,
// `marks` receives where blocks have cache_control, `places` the index in `messages` that each
// result comes from, and `pictures` the images.
StatusOr<std::vector<ChatMessage>> ToChatMessages(const nlohmann::ordered_json* system,
                                                  const nlohmann::ordered_json& messages,
                                                  ToolCatalog* tools,
                                                  std::vector<std::string>* warnings,
                                                  std::vector<PromptMark>* marks = nullptr,
                                                  std::vector<size_t>* places = nullptr,
                                                  PictureReader* pictures = nullptr);

// Claude Code begins its system prompt with a line of billing data that changes with every request.
// It means nothing to a model, and would make every prompt differ from its first token on.
std::string WithoutBillingHeader(std::string_view system);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_ANTHROPIC_REQUEST_H_
