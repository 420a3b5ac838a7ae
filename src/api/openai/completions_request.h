// What a request body of POST /v1/completions asks for.
//
// Values of one request; one thread.
#ifndef WEFT_API_OPENAI_COMPLETIONS_REQUEST_H_
#define WEFT_API_OPENAI_COMPLETIONS_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "api/openai/chat_request.h"
#include "api/session_name.h"
#include "base/status.h"
#include "host/host.h"
#include "http/http.h"

namespace weft::serve {

struct CompletionRequest {
  struct Prompt {
    std::vector<int32_t> tokens;
    std::string text;      // what echo repeats
    bool is_text = false;  // as it was given
  };
  std::vector<Prompt> prompts;
  TurnOptions turn;  // without tokens
  SessionChoice session;
  StreamChoice stream;
  bool echo = false;
  bool wants_logprobs = false;
  int n_answers = 1;  // of the turn's choices those that were likeliest, token by token
  std::vector<std::string> ignored;  // fields that nobody knows
};

// Errors carry the field at fault.
StatusOr<CompletionRequest> ReadCompletion(Host& host, const HttpRequest& request);

}  // namespace weft::serve

#endif  // WEFT_API_OPENAI_COMPLETIONS_REQUEST_H_
