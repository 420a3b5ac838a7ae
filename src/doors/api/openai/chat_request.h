// Reads and checks the body of a chat completion.
#ifndef WEFT_DOORS_API_OPENAI_CHAT_REQUEST_H_
#define WEFT_DOORS_API_OPENAI_CHAT_REQUEST_H_

#include <string>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/api/tool_catalog.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ChatCompletionRequest {
  Ask ask;
  ToolCatalog tools;
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
  bool return_progress = false;      // while the prompt is computed, in a stream
  bool verbose = false;              // include the prompt in the answer
  std::vector<std::string> ignored;  // unknown fields
  std::vector<std::string> warnings;
};

StatusOr<ChatCompletionRequest> ReadChatCompletion(Host& host, const HttpRequest& request);

// Reads the template's variables and how the reply begins: chat_template_kwargs, enable_thinking,
// reasoning_effort, the limits on thoughts, continue_final_message. Call after the messages have
// been read.
void ReadTemplateVariables(ApiFields* fields, const RequestDefaults& defaults, Ask* ask);

// Shared with the older completions.
// stream, stream_options, timings_per_token.
struct StreamChoice {
  bool stream = false;
  bool include_usage = false;
  bool timings_per_token = false;
};
StreamChoice ReadStreamChoice(ApiFields* fields, std::vector<std::string>* ignored);
// Accounts, billing, storage: irrelevant to a private server. Prompt caches are read for chats only
// (ReadPromptCache).
void ReadAccountFields(ApiFields* fields);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OPENAI_CHAT_REQUEST_H_
