#include "answer/ask.h"

#include <string_view>

#include "answer/error_details.h"

namespace weft::serve {

Status CheckCounts(const Conversation& conversation) {
  const auto check = [](size_t n, std::string_view name, size_t max) {
    if (n <= max) return OkStatus();
    return WithCode(
        WithParam(InvalidArgument(name, " has ", n, " entries, at most ", max, " are taken"), name),
        "invalid_value");
  };
  WEFT_RETURN_IF_ERROR(check(conversation.messages.size(), "messages", kMaxMessages));
  return check(conversation.tools.size(), "tools", kMaxTools);
}

}  // namespace weft::serve
