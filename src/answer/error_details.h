// Details of an error that a status alone cannot carry: the field at fault, a code, and the numbers
// of a prompt that is too long. They travel as payloads of the status, and each API writes them in
// its own form.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_ERROR_DETAILS_H_
#define WEFT_ANSWER_ERROR_DETAILS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::serve {

struct ErrorDetails {
  std::string param;                         // the field at fault; may be empty
  std::string code;                          // OpenAI's, for example "invalid_value"; may be empty
  int64_t n_prompt_tokens = -1, n_ctx = -1;  // set where a prompt is too long
};
ErrorDetails DetailsOf(const Status& status);

Status WithParam(Status status, std::string_view param);
Status WithCode(Status status, std::string_view code);
// Also says the context's size in OpenAI's words.
Status WithContext(const Status& refused, int64_t n_prompt_tokens, int64_t n_ctx);
// An error whose message begins with the place at fault ("messages[2].content: ..."), as one of
// that place.
Status AtPlace(const Status& status);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ERROR_DETAILS_H_
