// Reads and checks the bodies of Ollama's /api/chat and /api/generate.
#ifndef WEFT_DOORS_API_OLLAMA_REQUEST_H_
#define WEFT_DOORS_API_OLLAMA_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/ask.h"
#include "base/status.h"
#include "doors/api/fields/support.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

class PictureReader;

struct OllamaRequest {
  std::string model;  // the name used by the client
  Ask ask;            // a conversation, or a prompt without a template
  // The request only asks to load or unload the model, which has no effect here.
  enum class Probe { kNone, kLoad, kUnload };
  Probe probe = Probe::kNone;
  bool stream = true;
  // A conversation that is too long loses its oldest turns.
  bool truncate = true;
  std::vector<std::string> ignored;
  std::vector<std::string> warnings;
};

StatusOr<OllamaRequest> ReadOllamaChat(Host& host, const HttpRequest& request);
StatusOr<OllamaRequest> ReadOllamaGenerate(Host& host, const HttpRequest& request);

// `model`, or `name`, its former name. NOT_FOUND in Ollama's wording unless it is the served model,
// whose names are accepted with and without ":latest".
StatusOr<std::string> ReadOllamaModel(Host& host, ApiFields* fields);
bool IsServedModel(Host& host, std::string_view name);

// Reads Ollama's messages, an array: a tool result, which may only name the tool, gets the id of
// the call it answers. Images of tool results that the model cannot see are left out, and
// `warnings` says so; without `pictures`, others are an error.
StatusOr<std::vector<ChatMessage>> FromOllamaMessages(const nlohmann::ordered_json& messages,
                                                      std::vector<std::string>* warnings,
                                                      PictureReader* pictures = nullptr);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OLLAMA_REQUEST_H_
