// The body of a request to the Responses API, read, checked and turned into the
// conversation that chat templates know.
#ifndef WEFT_API_RESPONSES_REQUEST_H_
#define WEFT_API_RESPONSES_REQUEST_H_

#include <string>
#include <vector>

#include "api/chat_turn.h"
#include "api/tool_catalog.h"
#include "base/status.h"
#include "host/host.h"
#include "http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ResponsesRequest {
  ChatCall call;
  ToolCatalog tools;
  bool stream = false;
  bool include_logprobs = false;
  bool timings_per_token = false;
  bool return_progress = false;  // while the prompt is computed, in a stream
  // What a response repeats of its request: instructions, tools, temperature, ...
  nlohmann::ordered_json echo;
  std::vector<std::string> ignored;
  std::vector<std::string> warnings;
};

StatusOr<ResponsesRequest> ReadResponses(Host& host, const HttpRequest& request);

// `instructions` and `input` as messages: neighbouring reasoning, text and calls of the
// model become one message again. Items about tools that ran elsewhere say nothing to a model
// that does not have them: they are left out, and `warnings` says so.
StatusOr<nlohmann::ordered_json> ItemsToChatMessages(const nlohmann::ordered_json* instructions,
                                                     const nlohmann::ordered_json& input,
                                                     std::vector<std::string>* warnings);

}  // namespace weft::serve

#endif  // WEFT_API_RESPONSES_REQUEST_H_
