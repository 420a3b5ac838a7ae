#include "answer/chat/conversation.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "json/big_integer.h"

namespace weft {
namespace {

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr int kMaxArgumentsDepth = 64;

bool IsShallow(std::string_view json) {
  int depth = 0;
  for (const char c : json) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxArgumentsDepth) return false;
  }
  return true;
}

}  // namespace

std::string_view NameOf(Role role) { return kRoles[static_cast<size_t>(role)]; }

std::optional<Role> RoleNamed(std::string_view name) {
  const auto* const it = std::ranges::find(kRoles, name);
  if (it == std::end(kRoles)) return std::nullopt;
  return static_cast<Role>(it - std::begin(kRoles));
}

std::string TextOf(const ChatMessage& message) {
  std::string text;
  for (const std::string& part : message.parts) {
    if (!text.empty() && message.role != Role::kAssistant) text += '\n';
    text += part;
  }
  return text;
}

nlohmann::ordered_json CallArguments(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == text.npos) return nlohmann::ordered_json::object();
  if (IsShallow(text)) {
    nlohmann::ordered_json parsed = ParseKeepingIntegers(text);
    if (parsed.is_object()) return parsed;
  }
  return std::string(text);
}

const nlohmann::ordered_json* Tool::parameters() const {
  const auto it = function().find("parameters");
  return it == function().end() || it->is_null() ? nullptr : &*it;
}

}  // namespace weft
