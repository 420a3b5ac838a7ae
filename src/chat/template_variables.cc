#include "chat/template_variables.h"

#include <ctime>
#include <string>

#include "chat/call_text.h"

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

}  // namespace

void AddTemplateVariables(const ChatTemplate& chat_template, const Json& tools, int64_t now,
                          Json* context) {
  const auto wants = [&](const char* name) {
    return chat_template.Mentions(name) && !context->contains(name);
  };
  // A few templates only know thinking by this name; the value given under the other name applies.
  if (wants("thinking") && context->contains("enable_thinking")) {
    (*context)["thinking"] = (*context)["enable_thinking"];
  }
  if (wants("enable_thinking")) (*context)["enable_thinking"] = true;
  // Llama 3.1 and later; without it they state a date in 2024.
  if (wants("date_string")) (*context)["date_string"] = Date(now, "%d %b %Y");
  // Firefunction's. No time of day: it would make every prompt different.
  if (wants("datetime")) (*context)["datetime"] = Date(now, "%b %d %Y");
  if (wants("functions")) (*context)["functions"] = tools.empty() ? "" : JsonText(tools);
}

}  // namespace weft
