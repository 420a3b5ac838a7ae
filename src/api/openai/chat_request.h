// The body of a chat completion, read and checked.
#ifndef WEFT_API_OPENAI_CHAT_REQUEST_H_
#define WEFT_API_OPENAI_CHAT_REQUEST_H_

#include <string>
#include <vector>

#include "api/chat_turn.h"
#include "api/tool_catalog.h"
#include "base/status.h"
#include "host/host.h"
#include "http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ChatCompletionRequest {
  ChatCall call;
  ToolCatalog tools;
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
  bool return_progress = false;      // while the prompt is computed, in a stream
  bool verbose = false;              // the answer shows its prompt
  std::vector<std::string> ignored;  // fields that nobody knows
  std::vector<std::string> warnings;
};

StatusOr<ChatCompletionRequest> ReadChatCompletion(Host& host, const HttpRequest& request);

// What the template is rendered with, and how the reply begins: chat_template_kwargs,
// enable_thinking, reasoning_effort, the limits of thoughts, continue_final_message. To be called
// when the messages are read.
void ReadTemplateVariables(ApiFields* fields, const RequestDefaults& defaults, ChatCall* call);

// Shared with the older completions.
// stream, stream_options, timings_per_token.
struct StreamChoice {
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
};
StreamChoice ReadStreamChoice(ApiFields* fields, std::vector<std::string>* ignored);
// Accounts, billing, storage: what a server of one's own has no use for.
void ReadAccountFields(ApiFields* fields);

}  // namespace weft::serve

#endif  // WEFT_API_OPENAI_CHAT_REQUEST_H_
