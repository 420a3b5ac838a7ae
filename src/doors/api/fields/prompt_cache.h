// Reads the prefixes that clients mark: Anthropic's cache_control, OpenAI's prompt_cache_options,
// prompt_cache_retention and prompt_cache_breakpoint.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_PROMPT_CACHE_H_
#define WEFT_DOORS_API_FIELDS_PROMPT_CACHE_H_

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "answer/prompt_marks.h"
#include "base/status.h"
#include "doors/api/fields/support.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

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

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_PROMPT_CACHE_H_
