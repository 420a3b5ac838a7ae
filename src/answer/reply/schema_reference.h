// Where the references of a tool's JSON Schema lead. Pure functions; any thread.
#ifndef WEFT_ANSWER_REPLY_SCHEMA_REFERENCE_H_
#define WEFT_ANSWER_REPLY_SCHEMA_REFERENCE_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace weft {

struct ReferredSchema {
  const nlohmann::ordered_json* schema;
  std::vector<std::string> path = {};  // from the root; empty: the schema that was given
};

// Follows "$ref" to definitions of the same document, and a few references that lead to one
// another. One that leads nowhere is not followed.
ReferredSchema FollowReferences(const nlohmann::ordered_json& root,
                                const nlohmann::ordered_json& schema);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_SCHEMA_REFERENCE_H_
