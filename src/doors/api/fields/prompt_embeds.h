// prompt_embeds: vectors that a client sends in place of tokens, in base64, in one of the forms of
// answer/row_file.h. For a whole prompt, or as parts of a conversation's messages.
//
// Values of one request; one thread.
#ifndef WEFT_DOORS_API_FIELDS_PROMPT_EMBEDS_H_
#define WEFT_DOORS_API_FIELDS_PROMPT_EMBEDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "answer/prompt_rows.h"
#include "base/status.h"
#include "doors/host/host.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// The vectors, concatenated. Errors, also that the server takes none, name `place`.
StatusOr<std::vector<float>> ReadPromptEmbeds(Host& host, const nlohmann::ordered_json& value,
                                              std::string_view place);

// OpenAI's messages, in which each content part {"type": "prompt_embeds", "data": ...} is replaced
// by a text: a mark that nobody can guess.
struct MessagesWithRows {
  nlohmann::ordered_json messages;
  std::vector<EmbeddedRows> rows;
};
StatusOr<MessagesWithRows> TakePromptEmbeds(Host& host, const nlohmann::ordered_json& messages);
// Whether there are such parts.
bool HavePromptEmbeds(const nlohmann::ordered_json& messages);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_PROMPT_EMBEDS_H_
