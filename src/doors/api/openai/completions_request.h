// Reads the body of POST /v1/completions.
//
// Values of one request; one thread.
#ifndef WEFT_DOORS_API_OPENAI_COMPLETIONS_REQUEST_H_
#define WEFT_DOORS_API_OPENAI_COMPLETIONS_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "doors/api/fields/session_name.h"
#include "doors/api/openai/chat_request.h"
#include "doors/host/host.h"
#include "doors/http/http.h"

namespace weft::serve {

struct CompletionRequest {
  struct Prompt {
    std::vector<int32_t> tokens;
    std::string text;      // repeated by echo
    bool is_text = false;  // given as text
    // Vectors in place of both.
    std::shared_ptr<const std::vector<PromptPart>> parts;
  };
  std::vector<Prompt> prompts;
  Ask ask{.input = Ask::Input::kPrompt};  // without a prompt
  StreamChoice stream;
  bool echo = false;
  bool wants_logprobs = false;
  int n_answers = 1;  // how many of the turn's choices to return: the likeliest per token
  std::vector<std::string> ignored;  // unknown fields
};

// Errors carry the field at fault.
StatusOr<CompletionRequest> ReadCompletion(Host& host, const HttpRequest& request);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OPENAI_COMPLETIONS_REQUEST_H_
