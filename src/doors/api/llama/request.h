// Reads the bodies of llama-server's own routes and reports a request's settings.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_LLAMA_REQUEST_H_
#define WEFT_DOORS_API_LLAMA_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "doors/api/fields/session_name.h"
#include "doors/host/host.h"
#include "doors/http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Where a picture belongs in a text (prompt_string), as /props says.
inline constexpr std::string_view kMediaMarker = "<__media__>";

struct LlamaPrompt {
  std::vector<int32_t> tokens;
  // Of a prompt with pictures, instead of its tokens: as Ask::text, and as the client wrote it.
  std::string text, written;
  std::vector<AskedPicture> pictures;
};

struct LlamaCompletion {
  std::vector<LlamaPrompt> prompts;
  Ask ask{.input = Ask::Input::kPrompt};  // without a prompt
  // This long after its first token the answer ends at the next line break; 0: never.
  int64_t max_predict_ms = 0;
  int64_t slot = -1;  // the slot the session belongs to; -1: none
  bool stream = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  std::vector<std::string> response_fields;
  std::vector<std::string> ignored;
};

StatusOr<LlamaCompletion> ReadLlamaCompletion(Host& host, const HttpRequest& request);
// The body of /infill: input_prefix, input_suffix, input_extra and prompt instead of a prompt;
// otherwise the same.
StatusOr<LlamaCompletion> ReadLlamaInfill(Host& host, const HttpRequest& request);

// "generation_settings" of an answer, "params" of /props. `seed` is the one in use, or -1 if it is
// yet to be drawn. Unsupported samplers are reported as disabled.
nlohmann::ordered_json LlamaSettings(const LlamaCompletion& read,
                                     const nlohmann::ordered_json& seed,
                                     const Tokenizer& tokenizer);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_LLAMA_REQUEST_H_
