#include "answer/chat/template_variables.h"

#include <ctime>
#include <string>
#include <vector>

#include "answer/chat/call_text.h"
#include "base/strings.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string Date(int64_t now, const char* format) {
  const std::time_t seconds = now;
  std::tm parts = {};
  char text[64];
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

std::string AsJson(const ToolList& tools) {
  std::vector<std::string> texts;
  for (const auto& tool : tools) texts.push_back(JsonText(tool->definition));
  return tools.empty() ? "" : StrCat("[", StrJoin(texts, ", "), "]");
}

}  // namespace

Json MissingVariables(const ChatTemplate& chat_template, const Json& given, const ToolList& tools,
                      int64_t now) {
  Json missing = Json::object();
  const auto wants = [&](const char* name) {
    return chat_template.Mentions(name) && !given.contains(name);
  };
  // A few templates only know thinking by this name; the value given under the other name applies.
  if (wants("thinking") && given.contains("enable_thinking")) {
    missing["thinking"] = given["enable_thinking"];
  }
  if (wants("enable_thinking")) missing["enable_thinking"] = true;
  // Llama 3.1 and later; without it they state a date in 2024.
  if (wants("date_string")) missing["date_string"] = Date(now, "%d %b %Y");
  // Firefunction's. No time of day: it would make every prompt different.
  if (wants("datetime")) missing["datetime"] = Date(now, "%b %d %Y");
  if (wants("functions")) missing["functions"] = AsJson(tools);
  if (wants("documents")) missing["documents"] = nullptr;
  return missing;
}

const char* ReservedVariableIn(const Json& given) {
  for (const char* const name :
       {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (given.contains(name)) return name;
  }
  return nullptr;
}

}  // namespace weft
