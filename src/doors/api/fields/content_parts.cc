#include "doors/api/fields/content_parts.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

bool HasPart(const ordered_json& message, IsWantedPart is_wanted) {
  const ordered_json& content = ValueIn(message, "content");
  return content.is_array() && std::any_of(content.begin(), content.end(), is_wanted);
}

}  // namespace

bool HaveParts(const ordered_json& messages, IsWantedPart is_wanted) {
  if (!messages.is_array()) return false;
  return std::any_of(messages.begin(), messages.end(),
                     [&](const ordered_json& message) { return HasPart(message, is_wanted); });
}

StatusOr<ordered_json> RewriteContents(
    const ordered_json& messages, IsWantedPart is_wanted,
    FunctionRef<StatusOr<ordered_json>(const ordered_json& content, const std::string& place)>
        rewrite) {
  ordered_json rewritten = ordered_json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!HasPart(messages[i], is_wanted)) {
      rewritten.push_back(messages[i]);
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(ordered_json content,
                          rewrite(messages[i]["content"], StrCat("messages[", i, "].content")));
    // Field by field, because the old content may be most of a request.
    ordered_json message = ordered_json::object();
    for (const auto& [name, value] : messages[i].items()) {
      if (name != "content") message[name] = value;
    }
    message["content"] = std::move(content);
    rewritten.push_back(std::move(message));
  }
  return rewritten;
}

}  // namespace weft::serve
