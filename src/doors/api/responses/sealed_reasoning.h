// Reasoning as the opaque text in which clients of the Responses API keep it: encrypted_content.
//
// It is encoded, not encrypted: answers show their reasoning in clear, and a client may send any
// text as reasoning, so a secret would protect nothing, and a text could not outlive the server.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_RESPONSES_SEALED_REASONING_H_
#define WEFT_DOORS_API_RESPONSES_SEALED_REASONING_H_

#include <optional>
#include <string>
#include <string_view>

namespace weft::serve {

std::string SealReasoning(std::string_view reasoning);
// No value for a text that is damaged or another server's.
std::optional<std::string> UnsealReasoning(std::string_view sealed);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_RESPONSES_SEALED_REASONING_H_
