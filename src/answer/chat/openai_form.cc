#include "answer/chat/openai_form.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMessages = 100'000;
constexpr size_t kMaxTools = 4096;

using Names = std::initializer_list<std::string_view>;
// What only an answer has: calls, and reasoning, of which the first that is not empty counts.
const Names kOfAnswers = {"tool_calls", "reasoning_content", "reasoning", "reasoning_text",
                          "thinking"};

const Json& Member(const Json& object, std::string_view key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

// The members of `object` without those in `left_out`. Those in `typed` keep their places, but not
// their values.
TemplateFields FieldsOf(const Json& object, Names typed, Names left_out) {
  const auto is_in = [](Names names, const std::string& name) {
    return std::ranges::count(names, name) > 0;
  };
  Json fields = Json::object();
  auto& members = fields.get_ref<Json::object_t&>();
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (!is_in(left_out, key)) members.emplace_back(key, is_in(typed, key) ? Json() : value);
  }
  return fields;
}

StatusOr<std::string> ReadPart(const Json& part, Role role, const std::string& place) {
  if (!part.is_object() || !Member(part, "type").is_string()) {
    return InvalidArgument(place, ": a content part must be an object with a type");
  }
  const std::string type = Member(part, "type").get<std::string>();
  if (role == Role::kAssistant && type == "refusal") {
    const Json& refusal = Member(part, "refusal");
    if (refusal.is_string()) return refusal.get<std::string>();
    return InvalidArgument(place, ".refusal: a refusal must have its text as a string");
  }
  if (type != "text") {
    std::string_view kind = type;  // "image_url" and "input_image" are images
    if (kind.starts_with("input_")) kind.remove_prefix(6);
    kind = kind.substr(0, kind.find('_'));
    return InvalidArgument(place, ": ", Printable(kind), " input is not supported: this server ",
                           "accepts only text; send the text of a part of type '", Printable(type),
                           "' or omit it");
  }
  const Json& text = Member(part, "text");
  if (text.is_string()) return text.get<std::string>();
  return InvalidArgument(place, ".text: a text part must have its text as a string");
}

StatusOr<std::vector<std::string>> ReadContent(const Json& message, Role role,
                                               const std::string& place) {
  const Json& content = Member(message, "content");
  std::vector<std::string> parts;
  if (content.is_string()) {
    parts.push_back(content.get<std::string>());
  } else if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(std::string part,
                            ReadPart(content[i], role, StrCat(place, ".content[", i, "]")));
      parts.push_back(std::move(part));
    }
  } else if (!content.is_null()) {
    return InvalidArgument(place, ".content: must be a string or a list of parts of type text");
  } else if (role != Role::kAssistant) {
    return InvalidArgument(place, ".content: a message of role '", NameOf(role), "' needs content");
  }
  return parts;
}

// A call of a custom tool, which takes one text, is one of a function with that text as input.
bool IsCustom(const Json& call) {
  const Json& custom = Member(call, "custom");
  return Member(call, "type") == "custom" && custom.is_object() && custom.contains("name");
}

StatusOr<Json> ReadArguments(const Json& arguments, const std::string& place) {
  if (arguments.is_null()) return Json::object();
  if (arguments.is_object()) return arguments;
  if (arguments.is_string()) return CallArguments(arguments.get_ref<const std::string&>());
  return InvalidArgument(place, ".function.arguments: must be JSON in a string, or an object");
}

StatusOr<ToolCall> ReadCall(const Json& json, const std::string& place) {
  const bool is_custom = json.is_object() && IsCustom(json);
  if (!json.is_object() || (!is_custom && !Member(json, "function").is_object())) {
    return InvalidArgument(place, ".function: must be an object with name and arguments");
  }
  ToolCall call;
  const Json& id = Member(json, "id");
  if (!id.is_null() && !id.is_string()) return InvalidArgument(place, ".id: must be a string");
  if (id.is_string()) call.id = id.get<std::string>();
  const char* const holder = is_custom ? "custom" : "function";
  const Json& function = Member(json, holder);
  const Json& name = Member(function, "name");
  if (name.is_string()) call.name = name.get<std::string>();
  if (call.name.empty()) {
    return InvalidArgument(place, ".", holder, ".name: must be a string that is not empty");
  }
  if (is_custom) {
    const Json& input = Member(function, "input");
    call.arguments = {{"input", input.is_string() ? input : Json("")}};
  } else {
    WEFT_ASSIGN_OR_RETURN(call.arguments, ReadArguments(Member(function, "arguments"), place));
    call.function_fields = FieldsOf(function, {"name", "arguments"}, {});
  }
  call.fields = FieldsOf(json, {"id", "type", "function"}, is_custom ? Names{"custom"} : Names{});
  return call;
}

StatusOr<std::vector<ToolCall>> ReadCalls(const Json& message, Role role,
                                          const std::string& place) {
  std::vector<ToolCall> calls;
  const Json& given = Member(message, "tool_calls");
  if (given.is_null()) return calls;
  if (role != Role::kAssistant) {
    return InvalidArgument(place, ".tool_calls: only messages of role 'assistant' have calls");
  }
  if (!given.is_array()) return InvalidArgument(place, ".tool_calls: must be a list of calls");
  for (size_t i = 0; i < given.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(ToolCall call, ReadCall(given[i], StrCat(place, ".tool_calls[", i, "]")));
    calls.push_back(std::move(call));
  }
  return calls;
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

std::string ReasoningOf(const Json& message) {
  for (const std::string_view name : kOfAnswers) {
    const Json& text = Member(message, name);
    if (text.is_string() && text != "") return text.get<std::string>();
  }
  return "";
}

}  // namespace

StatusOr<ChatMessage> ReadOpenAiMessage(const Json& message, const std::string& place) {
  if (!message.is_object()) return InvalidArgument(place, ": must be an object");
  const Json& name = Member(message, "role");
  if (!name.is_string()) return InvalidArgument(place, ".role: must be a string");
  const auto role = RoleNamed(name.get_ref<const std::string&>());
  if (!role) {
    return InvalidArgument(place, ".role: there is no role '", Printable(name.get<std::string>()),
                           "'; use system, developer, user, assistant or tool");
  }
  ChatMessage read{.role = *role};
  WEFT_ASSIGN_OR_RETURN(read.parts, ReadContent(message, *role, place));
  WEFT_RETURN_IF_ERROR(CheckStrings(message, place));
  WEFT_ASSIGN_OR_RETURN(read.calls, ReadCalls(message, *role, place));
  const Json& id = Member(message, "tool_call_id");
  if (*role == Role::kTool && id.is_string()) read.call_id = id.get<std::string>();
  if (*role == Role::kAssistant) {
    read.reasoning = ReasoningOf(message);
    read.fields = FieldsOf(message, {"role", "content"}, kOfAnswers);
  } else {
    const std::string_view id_name = read.call_id.empty() ? "role" : "tool_call_id";
    read.fields = FieldsOf(message, {"role", "content", id_name}, {});
  }
  return read;
}

StatusOr<std::vector<ChatMessage>> ReadOpenAiMessages(const Json& messages) {
  if (!messages.is_array()) return InvalidArgument("messages: must be a list of messages");
  if (messages.empty()) return InvalidArgument("messages: there must be at least one");
  if (messages.size() > kMaxMessages) {
    return InvalidArgument("messages: there are ", messages.size(), ", at most ", kMaxMessages);
  }
  std::vector<ChatMessage> read;
  read.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(ChatMessage message,
                          ReadOpenAiMessage(messages[i], StrCat("messages[", i, "]")));
    read.push_back(std::move(message));
  }
  return read;
}

StatusOr<std::shared_ptr<const Tool>> ReadOpenAiTool(Json tool, const std::string& place) {
  if (!tool.is_object()) return InvalidArgument(place, ": must be an object");
  const Json& type = Member(tool, "type");
  if (!type.is_null() && type != "function") {
    return InvalidArgument(place, ".type: only tools of type 'function' are known");
  }
  const Json& function = Member(tool, "function");
  if (!function.is_object()) return InvalidArgument(place, ".function: must be an object");
  const Json& name = Member(function, "name");
  if (!name.is_string() || name == "") {
    return InvalidArgument(place, ".function.name: must be a string that is not empty");
  }
  const Json& description = Member(function, "description");
  if (!description.is_null() && !description.is_string()) {
    return InvalidArgument(place, ".function.description: must be a string");
  }
  const Json& parameters = Member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object()) {
    return InvalidArgument(place, ".function.parameters: must be a JSON schema, an object");
  }
  std::string called = name.get<std::string>();
  return std::make_shared<const Tool>(
      Tool{.name = std::move(called), .definition = std::move(tool)});
}

StatusOr<ToolList> ReadOpenAiTools(const Json& tools) {
  ToolList read;
  if (tools.is_null()) return read;
  if (!tools.is_array()) return InvalidArgument("tools: must be a list of tools");
  if (tools.size() > kMaxTools) {
    return InvalidArgument("tools: there are ", tools.size(), ", at most ", kMaxTools);
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(auto tool, ReadOpenAiTool(tools[i], StrCat("tools[", i, "]")));
    read.push_back(std::move(tool));
  }
  return read;
}

}  // namespace weft
