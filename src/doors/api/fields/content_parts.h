// Content parts of OpenAI's messages that become texts before the messages are read: pictures and
// input embeddings.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_CONTENT_PARTS_H_
#define WEFT_DOORS_API_FIELDS_CONTENT_PARTS_H_

#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

using IsWantedPart = bool (*)(const nlohmann::ordered_json& part);

// Whether a message has such a part. `messages` may be anything.
bool HaveParts(const nlohmann::ordered_json& messages, IsWantedPart is_wanted);

// The messages, an array, with a new content for each that has such a part. `rewrite` returns it;
// its `place` is for errors, for example "messages[2].content".
StatusOr<nlohmann::ordered_json> RewriteContents(
    const nlohmann::ordered_json& messages, IsWantedPart is_wanted,
    FunctionRef<StatusOr<nlohmann::ordered_json>(const nlohmann::ordered_json& content,
                                                 const std::string& place)>
        rewrite);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_CONTENT_PARTS_H_
