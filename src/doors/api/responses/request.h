// Reads and checks the body of a Responses API request.
#ifndef WEFT_DOORS_API_RESPONSES_REQUEST_H_
#define WEFT_DOORS_API_RESPONSES_REQUEST_H_

#include <string>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/api/tool_catalog.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class PictureReader;

struct ResponsesRequest {
  Ask ask;
  ToolCatalog tools;
  bool stream = false;
  bool tells_diagnostics = false;  // the request names a response to compare its cache use with
  bool include_logprobs = false;
  bool include_sealed_reasoning = false;  // see sealed_reasoning.h
  bool timings_per_token = false;
  bool return_progress = false;  // while the prompt is computed, in a stream
  // Fields that the response echoes: instructions, tools, temperature, ...
  nlohmann::ordered_json echo;
  std::vector<std::string> ignored;
  std::vector<std::string> warnings;
};

StatusOr<ResponsesRequest> ReadResponses(Host& host, const HttpRequest& request);

// Converts `instructions` and `input` to messages: adjacent reasoning, text and calls of the model
// are merged into one message. Tools that a search found or the client added are offered in
// `tools`. Items about tools that ran elsewhere mean nothing to a model without them: they are left
// out, and `warnings` says so.
StatusOr<std::vector<ChatMessage>> ItemsToChatMessages(const nlohmann::ordered_json* instructions,
                                                       const nlohmann::ordered_json& input,
                                                       ToolCatalog* tools,
                                                       std::vector<std::string>* warnings,
                                                       std::vector<size_t>* places = nullptr,
                                                       PictureReader* pictures = nullptr);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_RESPONSES_REQUEST_H_
