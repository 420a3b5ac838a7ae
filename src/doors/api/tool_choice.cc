#include "doors/api/tool_choice.h"

#include <string>
#include <string_view>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kShape =
    "must be \"auto\", \"none\", \"required\", a tool such as {\"type\":\"function\", "
    "\"function\":{\"name\":...}}, or one of type allowed_tools";

// A tool is named at the top level (Responses, Anthropic) or below its type (chat completions).
std::string NameIn(const ordered_json& tool) {
  std::string name = StringOr(tool, "name");
  for (const char* const below : {"function", "custom"}) {
    if (name.empty() && tool.is_object() && tool.contains(below))
      name = StringOr(tool[below], "name");
  }
  return FunctionName(StringOr(tool, "namespace"), name);
}

// Fails if no offered tool has that name.
void AddTool(const ordered_json& tool, const ToolCatalog& tools, ApiFields* fields,
             ToolChoice* choice) {
  RefuseLeftOut(tools, tool, fields);
  const std::string name = NameIn(tool);
  if (name.empty()) return fields->Fail("tool_choice", kShape);
  if (!tools.Offers(name)) {
    const char* const why = tools.IsDeferred(name)
                                ? ", a deferred tool that the conversation has not named yet"
                                : ", which is not in tools";
    return fields->Fail("tool_choice", StrCat("names ", Printable(name), why));
  }
  choice->only.push_back(name);
}

void ReadAllowedTools(const ordered_json& value, const ToolCatalog& tools, ApiFields* fields,
                      ToolChoice* choice) {
  const ordered_json& inner = value.contains("allowed_tools") ? value["allowed_tools"] : value;
  const std::string mode = StringOr(inner, "mode", "auto");
  const auto list = inner.is_object() ? inner.find("tools") : inner.end();
  const bool fits = inner.is_object() && (mode == "auto" || mode == "required") &&
                    list != inner.end() && list->is_array() && !list->empty();
  if (!fits) {
    return fields->Fail("tool_choice",
                        "of type allowed_tools needs a mode, auto or required, and tools");
  }
  choice->must_call = mode == "required";
  for (const ordered_json& tool : *list) AddTool(tool, tools, fields, choice);
}

}  // namespace

ToolChoice ReadToolChoice(ApiFields* fields, const ToolCatalog& tools) {
  ToolChoice choice{.strict = tools.has_strict(), .grammars = tools.grammars()};
  choice.single_call = !fields->Bool("parallel_tool_calls").value_or(true);
  const ordered_json* const value = fields->Value("tool_choice");
  if (value == nullptr || *value == "auto") return choice;
  const std::string type = StringOr(*value, "type");
  if (*value == "none") {
    choice.calls_allowed = false;
  } else if (*value == "required") {
    choice.must_call = true;
  } else if (type == "allowed_tools") {
    ReadAllowedTools(*value, tools, fields, &choice);
  } else if (value->is_object()) {
    choice.must_call = choice.single_call = true;
    AddTool(*value, tools, fields, &choice);
  } else {
    fields->Fail("tool_choice", kShape);
  }
  if (choice.must_call && tools.functions().empty()) {
    fields->Fail("tool_choice", "asks for a call, but there are no tools");
  }
  return choice;
}

ToolChoice ReadAnthropicToolChoice(ApiFields* fields, const ToolCatalog& tools) {
  ToolChoice choice{.strict = tools.has_strict()};
  const ordered_json* const value = fields->Value("tool_choice");
  if (value == nullptr) return choice;
  const std::string type = StringOr(*value, "type");
  if (type == "none") {
    choice.calls_allowed = false;
  } else if (type == "any" || type == "tool") {
    choice.must_call = true;
  } else if (type != "auto") {
    fields->Fail("tool_choice", "must be an object of type auto, any, tool or none");
    return choice;
  }
  choice.single_call =
      type == "tool" || value->value("disable_parallel_tool_use", ordered_json()) == true;
  if (type == "tool") AddTool(*value, tools, fields, &choice);
  if (choice.must_call && tools.functions().empty()) {
    fields->Fail("tool_choice", "asks for a call, but there are no tools");
  }
  return choice;
}

}  // namespace weft::serve
