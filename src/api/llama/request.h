// What llama-server's own routes read from a body: texts mixed with tokens, and the body of
// /completion; and how they tell a request's settings.
//
// Functions of their arguments; any thread.
#ifndef WEFT_API_LLAMA_REQUEST_H_
#define WEFT_API_LLAMA_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/session_name.h"
#include "host/host.h"
#include "http/http.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// How a text becomes tokens; `at_start`: nothing comes before it.
using TextEncoder = std::function<std::vector<int32_t>(std::string_view text, bool at_start)>;

// A text, or an array of texts and token ids in turn. False for anything else.
bool ReadMixedText(const nlohmann::ordered_json& value, int64_t n_vocab, const TextEncoder& encode,
                   std::vector<int32_t>* tokens);

struct LlamaCompletion {
  std::vector<std::vector<int32_t>> prompts;  // tokens
  TurnOptions turn;                           // without tokens
  // So long after its first token the answer ends at its next line; 0: never.
  int64_t max_predict_ms = 0;
  SessionChoice session;
  int64_t slot = -1;  // that the session is of; -1: none
  bool stream = false;
  bool return_tokens = false;
  bool timings_per_token = false;
  std::vector<std::string> response_fields;
  std::vector<std::string> ignored;
};

StatusOr<LlamaCompletion> ReadLlamaCompletion(Host& host, const HttpRequest& request);
// The body of /infill: input_prefix, input_suffix, input_extra and prompt in place of a
// prompt, else the same.
StatusOr<LlamaCompletion> ReadLlamaInfill(Host& host, const HttpRequest& request);

// "generation_settings" of an answer, "params" of /props. `seed` is the one in use, -1 for
// one that is yet to be drawn. Unsupported samplers are reported as disabled.
nlohmann::ordered_json LlamaSettings(const LlamaCompletion& read,
                                     const nlohmann::ordered_json& seed,
                                     const Tokenizer& tokenizer);

}  // namespace weft::serve

#endif  // WEFT_API_LLAMA_REQUEST_H_
