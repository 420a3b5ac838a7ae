// The bodies of Ollama's /api/chat and /api/generate, read, checked and turned into the
// conversation that chat templates know.
#ifndef WEFT_API_OLLAMA_REQUEST_H_
#define WEFT_API_OLLAMA_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_turn.h"
#include "api/support.h"
#include "base/status.h"
#include "host/host.h"
#include "http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct OllamaRequest {
  std::string model;  // by the name that the client has for it
  ChatCall call;
  // In place of a conversation: the tokens of a prompt that no template is put around.
  std::optional<std::vector<int32_t>> prompt;
  // Nothing is asked but that the model be loaded or unloaded, which changes nothing here.
  enum class Probe { kNone, kLoad, kUnload };
  Probe probe = Probe::kNone;
  bool stream = true;
  std::vector<std::string> ignored;
  std::vector<std::string> warnings;
};

StatusOr<OllamaRequest> ReadOllamaChat(Host& host, const HttpRequest& request);
StatusOr<OllamaRequest> ReadOllamaGenerate(Host& host, const HttpRequest& request);

// `model`, or `name`, which it was called once. NOT_FOUND in Ollama's words where it is not the
// one that is served, whose names are known with and without ":latest".
StatusOr<std::string> ReadOllamaModel(Host& host, ApiFields* fields);
bool IsServedModel(Host& host, std::string_view name);

// Ollama's messages as OpenAI's: a result of a tool, which may tell only the tool's name, gets
// the id of the call that it answers. Pictures that tools gave are left out, and `warnings` says
// so; others are an error.
StatusOr<nlohmann::ordered_json> FromOllamaMessages(nlohmann::ordered_json messages,
                                                    std::vector<std::string>* warnings);

}  // namespace weft::serve

#endif  // WEFT_API_OLLAMA_REQUEST_H_
