// Shortens a conversation that is longer than the context, which clients of Ollama rely on.
//
// Any thread.
#ifndef WEFT_DOORS_API_OLLAMA_OLDEST_TURNS_H_
#define WEFT_DOORS_API_OLLAMA_OLDEST_TURNS_H_

#include <string>

#include "answer/ask.h"
#include "doors/host/host.h"

namespace weft::serve {

// Drops the oldest turns until there is room for an answer, and returns a sentence about it; after
// the last user message, the oldest calls with their results. Never drops system messages, the last
// user message and what follows its last call. Of a generation's context, drops the oldest tokens.
//
// Drops by quarters of the context, counted from the beginning of the conversation: so the next few
// requests of a growing one begin alike, and most of their prompts need not be computed.
//
// Empty if nothing that may be dropped is enough; `ask` is then unchanged.
std::string DropOldestTurns(Host& host, Ask* ask);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_OLLAMA_OLDEST_TURNS_H_
