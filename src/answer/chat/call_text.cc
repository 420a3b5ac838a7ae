#include "answer/chat/call_text.h"

#include <string_view>
#include <vector>

#include "base/strings.h"
#include "json/json_text.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Arguments that are not JSON are kept as text.
std::string ArgumentsText(const Json& arguments) {
  return arguments.is_string() ? arguments.get<std::string>() : JsonText(arguments);
}

std::string PythonCall(const ToolCall& call) {
  std::vector<std::string> arguments;
  if (call.arguments.is_object()) {
    for (const auto& [key, value] : call.arguments.items()) {
      arguments.push_back(StrCat(key, "=", StyledJson(value, JsonStyle::kPython)));
    }
  }
  return StrCat(call.name, "(", StrJoin(arguments, ", "), ")");
}

std::string JsonCall(const ToolCall& call, std::string_view arguments_key) {
  return StrCat("{\"name\": ", Json(call.name).dump(), ", \"", arguments_key,
                "\": ", ArgumentsText(call.arguments), "}");
}

std::string DeepSeekCall(const ToolCall& call) {
  return StrCat("<｜tool▁call▁begin｜>", call.name, "<｜tool▁sep｜>", ArgumentsText(call.arguments),
                "<｜tool▁call▁end｜>");
}

std::string KimiCall(const ToolCall& call, size_t index) {
  return StrCat("<|tool_call_begin|>functions.", call.name, ":", index,
                "<|tool_call_argument_begin|>", ArgumentsText(call.arguments), "<|tool_call_end|>");
}

std::string TaggedCall(const ToolCall& call, const TagSyntax& tags) {
  std::string text = StrCat(tags.function_open, call.name, tags.name_end);
  if (call.arguments.is_object()) {
    for (const auto& [key, value] : call.arguments.items()) {
      StrAppend(&text, "\n", tags.parameter_open, key, tags.key_end, "\n", tags.value_open,
                value.is_string() ? value.get<std::string>() : JsonText(value),
                tags.parameter_close);
    }
  }
  return StrCat(text, "\n", tags.function_close);
}

std::string GemmaValue(const Json& value) {
  if (value.is_string()) return StrCat("<|\"|>", value.get<std::string>(), "<|\"|>");
  return JsonText(value);
}

std::string GemmaCall(const ToolCall& call) {
  std::vector<std::string> arguments;
  if (call.arguments.is_object()) {
    for (const auto& [key, value] : call.arguments.items()) {
      arguments.push_back(StrCat(key, ":", GemmaValue(value)));
    }
  }
  return StrCat("call:", call.name, "{", StrJoin(arguments, ","), "}");
}

}  // namespace

std::string JsonText(const Json& value) { return StyledJson(value, JsonStyle::kSpaced); }

std::string CallsText(std::span<const ToolCall> calls, const ReplySyntax& syntax) {
  std::vector<std::string> texts;
  for (const ToolCall& call : calls) {
    switch (syntax.form) {
      case CallForm::kPython:
        texts.push_back(PythonCall(call));
        break;
      case CallForm::kDeepSeek:
        texts.push_back(DeepSeekCall(call));
        break;
      case CallForm::kGemma:
        texts.push_back(StrCat(syntax.opens[0], GemmaCall(call), syntax.closes[0]));
        break;
      case CallForm::kHarmony:
        texts.push_back(StrCat("<|channel|>commentary to=functions.", call.name,
                               " <|constrain|>json<|message|>", ArgumentsText(call.arguments)));
        break;
      case CallForm::kMistral:
        texts.push_back(JsonCall(call, "arguments"));
        break;
      case CallForm::kTagged:
        texts.push_back(TaggedCall(call, *syntax.tags));
        break;
      case CallForm::kKimi:
        texts.push_back(KimiCall(call, texts.size()));
        break;
      case CallForm::kFenced:
        texts.push_back(StrCat("{\"tool_name\": ", Json(call.name).dump(),
                               ", \"parameters\": ", ArgumentsText(call.arguments), "}"));
        break;
      case CallForm::kJson:
        if (syntax.bare_calls || syntax.closes.empty()) {
          texts.push_back(JsonCall(call, syntax.bare_calls ? "parameters" : "arguments"));
        } else {
          texts.push_back(
              StrCat(syntax.opens[0], "\n", JsonCall(call, "arguments"), "\n", syntax.closes[0]));
        }
        break;
    }
  }
  switch (syntax.form) {
    case CallForm::kPython:
      return StrCat(syntax.opens[0], "[", StrJoin(texts, ", "), "]", syntax.closes[0]);
    case CallForm::kDeepSeek:
    case CallForm::kKimi:
      return StrCat(syntax.opens[0], StrJoin(texts, ""), syntax.closes.back());
    case CallForm::kFenced:
      return StrCat(syntax.opens[0], "\n```json\n[", StrJoin(texts, ", "), "]\n", syntax.closes[0]);
    case CallForm::kMistral:
      return StrCat(syntax.opens[0], "[", StrJoin(texts, ", "), "]");
    case CallForm::kJson:
      if (syntax.closes.empty()) return StrCat(syntax.opens[0], "[", StrJoin(texts, ", "), "]");
      [[fallthrough]];
    default:
      return StrJoin(texts, syntax.bare_calls ? "; " : "\n");
  }
}

std::string ToolsText(const ToolList& tools, const ReplySyntax& syntax) {
  std::string text = "You can call these functions, described in JSON, one a line:\n<tools>\n";
  for (const auto& tool : tools) StrAppend(&text, JsonText(tool->function()), "\n");
  const ToolCall example{.name = "NAME",
                         .arguments = {{"first_argument", "text"}, {"second_argument", 2}}};
  StrAppend(&text, "</tools>\n\nTo call a function named NAME, answer exactly like this:\n",
            CallsText({&example, 1}, syntax),
            "\n\nTo call several, write one call after the other. Their results are given to you "
            "between <tool_response> and </tool_response>. When no function is needed, answer "
            "in plain text.");
  return text;
}

}  // namespace weft
