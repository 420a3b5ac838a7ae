// Validates the messages and tools that a client sends.
#include <algorithm>
#include <string>

#include "chat/chat_messages.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMessages = 100'000;
constexpr size_t kMaxTools = 4096;

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

Status CheckParts(const Json& parts, const std::string& role, const std::string& place) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const std::string here = StrCat(place, "[", i, "]");
    if (!part.is_object() || !Member(part, "type").is_string()) {
      return InvalidArgument(here, ": a content part must be an object with a type");
    }
    const std::string type = Member(part, "type").get<std::string>();
    if (role == "assistant" && type == "refusal") {
      if (Member(part, "refusal").is_string()) continue;
      return InvalidArgument(here, ".refusal: a refusal must have its text as a string");
    }
    if (type != "text") {
      std::string_view kind = type;  // "image_url" and "input_image" are images
      if (kind.starts_with("input_")) kind.remove_prefix(6);
      kind = kind.substr(0, kind.find('_'));
      return InvalidArgument(here, ": ", Printable(kind), " input is not supported: this server ",
                             "accepts only text; send the text of a part of type '",
                             Printable(type), "' or omit it");
    }
    if (!Member(part, "text").is_string()) {
      return InvalidArgument(here, ".text: a text part must have its text as a string");
    }
  }
  return OkStatus();
}

Status CheckContent(const Json& message, const std::string& role, const std::string& place) {
  const Json& content = Member(message, "content");
  if (content.is_string()) return OkStatus();
  if (content.is_array()) return CheckParts(content, role, StrCat(place, ".content"));
  if (!content.is_null()) {
    return InvalidArgument(place, ".content: must be a string or a list of parts of type text");
  }
  if (role == "assistant") return OkStatus();
  return InvalidArgument(place, ".content: a message of role '", role, "' needs content");
}

Status CheckCalls(const Json& message, const std::string& place) {
  const Json& calls = Member(message, "tool_calls");
  if (calls.is_null()) return OkStatus();
  if (!calls.is_array()) return InvalidArgument(place, ".tool_calls: must be a list of calls");
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string here = StrCat(place, ".tool_calls[", i, "]");
    if (!calls[i].is_object() || !Member(calls[i], "function").is_object()) {
      return InvalidArgument(here, ".function: must be an object with name and arguments");
    }
    const Json& id = Member(calls[i], "id");
    if (!id.is_null() && !id.is_string()) return InvalidArgument(here, ".id: must be a string");
    const Json& function = Member(calls[i], "function");
    const Json& name = Member(function, "name");
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      return InvalidArgument(here, ".function.name: must be a string that is not empty");
    }
    const Json& arguments = Member(function, "arguments");
    if (!arguments.is_null() && !arguments.is_string() && !arguments.is_object()) {
      return InvalidArgument(here, ".function.arguments: must be JSON in a string, or an object");
    }
  }
  return OkStatus();
}

Status CheckStrings(const Json& message, const std::string& place) {
  for (const char* const key :
       {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) {
    const Json& value = Member(message, key);
    if (!value.is_null() && !value.is_string()) {
      return InvalidArgument(place, ".", key, ": must be a string");
    }
  }
  return OkStatus();
}

Status CheckMessage(const Json& message, const std::string& place) {
  if (!message.is_object()) return InvalidArgument(place, ": must be an object");
  const Json& role_value = Member(message, "role");
  if (!role_value.is_string()) return InvalidArgument(place, ".role: must be a string");
  const std::string role = role_value.get<std::string>();
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    return InvalidArgument(place, ".role: there is no role '", Printable(role),
                           "'; use system, developer, user, assistant or tool");
  }
  WEFT_RETURN_IF_ERROR(CheckContent(message, role, place));
  WEFT_RETURN_IF_ERROR(CheckStrings(message, place));
  if (role != "assistant" && !Member(message, "tool_calls").is_null()) {
    return InvalidArgument(place, ".tool_calls: only messages of role 'assistant' have calls");
  }
  return CheckCalls(message, place);
}

}  // namespace

Status CheckMessages(const Json& messages) {
  if (!messages.is_array()) return InvalidArgument("messages: must be a list of messages");
  if (messages.empty()) return InvalidArgument("messages: there must be at least one");
  if (messages.size() > kMaxMessages) {
    return InvalidArgument("messages: there are ", messages.size(), ", at most ", kMaxMessages);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    WEFT_RETURN_IF_ERROR(CheckMessage(messages[i], StrCat("messages[", i, "]")));
  }
  return OkStatus();
}

Status CheckTools(const Json& tools) {
  if (tools.is_null()) return OkStatus();
  if (!tools.is_array()) return InvalidArgument("tools: must be a list of tools");
  if (tools.size() > kMaxTools) {
    return InvalidArgument("tools: there are ", tools.size(), ", at most ", kMaxTools);
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string here = StrCat("tools[", i, "]");
    if (!tool.is_object()) return InvalidArgument(here, ": must be an object");
    const Json& type = Member(tool, "type");
    if (!type.is_null() && type != "function") {
      return InvalidArgument(here, ".type: only tools of type 'function' are known");
    }
    const Json& function = Member(tool, "function");
    if (!function.is_object()) return InvalidArgument(here, ".function: must be an object");
    const Json& name = Member(function, "name");
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      return InvalidArgument(here, ".function.name: must be a string that is not empty");
    }
    const Json& description = Member(function, "description");
    if (!description.is_null() && !description.is_string()) {
      return InvalidArgument(here, ".function.description: must be a string");
    }
    const Json& parameters = Member(function, "parameters");
    if (!parameters.is_null() && !parameters.is_object()) {
      return InvalidArgument(here, ".function.parameters: must be a JSON schema, an object");
    }
  }
  return OkStatus();
}

}  // namespace weft
