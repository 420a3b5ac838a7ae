// Prefixes of a conversation that its client marked, because it means to come back to them:
// Anthropic's cache_control, OpenAI's prompt_cache_options, prompt_cache_retention and
// prompt_cache_breakpoint.
//
// Pure functions; any thread.
#ifndef WEFT_API_PROMPT_MARKS_H_
#define WEFT_API_PROMPT_MARKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "api/fields/support.h"
#include "base/status.h"
#include "chat/chat_format.h"
#include "host/host.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct PromptMark {
  static constexpr size_t kAll = SIZE_MAX;
  size_t n_messages = kAll;  // of the conversation, after its tools; kAll: the whole prompt
  size_t n_bytes = kAll;     // of the text of the last of these messages
  std::chrono::seconds keep_for{0};
};

// A time such as "5m" or "24h", up to a week; `otherwise` if there is none.
StatusOr<std::chrono::seconds> ReadKeepFor(const nlohmann::ordered_json& ttl,
                                           std::string_view place, std::chrono::seconds otherwise);
// Anthropic's mark on a block, a tool or the request itself: {"type": "ephemeral", "ttl": "5m" or
// "1h"}.
StatusOr<PromptMark> ReadCacheControl(const nlohmann::ordered_json& control,
                                      std::string_view place);
// prompt_cache_key, prompt_cache_retention and prompt_cache_options, which mark the whole prompt,
// and prompt_cache_breakpoint at parts of messages. The member `list` of the body has these, and
// places[i] is which of its entries messages[i] began with; empty: the entry at i.
void ReadPromptCache(ApiFields* fields, const char* list, std::span<const size_t> places,
                     std::span<const ChatMessage> messages, std::vector<PromptMark>* marks);

// Finds the marks among the turn's tokens, which are those of the whole conversation. Where a mark
// lies inside, the conversation is rendered once more up to there: for the first one, which new
// conversations share, and the last.
void PlaceMarks(Host& host, std::string_view domain, const ChatRequest& chat,
                std::span<const PromptMark> marks, TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_API_PROMPT_MARKS_H_
