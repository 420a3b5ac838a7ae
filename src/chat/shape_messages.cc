// Converts messages to the form that a given template takes.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chat/call_text.h"
#include "chat/chat_messages.h"
#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxArgumentsDepth = 64;

// Parts sent by clients are separate items, such as files; the parts of an answer were one text.
constexpr char kBetweenParts[] = "\n";

// Clients return reasoning under the name that their last server used.
constexpr const char* kReasoningNames[] = {"reasoning_content", "reasoning", "reasoning_text",
                                           "thinking"};

std::string StringMember(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

bool IsShallow(std::string_view json) {
  int depth = 0;
  for (const char c : json) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxArgumentsDepth) return false;
  }
  return true;
}

// An object, or the text itself if it is not an object.
Json ParsedArguments(const Json& arguments) {
  if (arguments.is_null()) return Json::object();
  if (!arguments.is_string()) return arguments;
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  if (!IsShallow(text)) return arguments;
  Json parsed = ParseKeepingIntegers(text);
  return parsed.is_object() ? parsed : arguments;
}

// Some templates refuse ids other than nine letters and digits. Equal ids map to equal ids.
std::string ShortId(const std::string& id) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kBytes = 9;
  const auto fits = [&](char c) { return kDigits.find(c) != std::string_view::npos; };
  if (id.size() == kBytes && std::all_of(id.begin(), id.end(), fits)) return id;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string out;
  for (size_t i = 0; i < kBytes; ++i, hash /= kDigits.size()) {
    out += kDigits[hash % kDigits.size()];
  }
  return out;
}

class Shaper {
 public:
  Shaper(const TemplateTraits& traits, const ReplySyntax& syntax)
      : traits_(traits), syntax_(syntax) {}

  Json Shape(const Json& messages) {
    for (const Json& message : messages) {
      const std::string role = message["role"];
      if (role == "assistant") {
        AddAssistant(message);
      } else if (role == "tool") {
        AddResult(message);
      } else {
        AddText(role == "developer" && !traits_.developer ? "system" : role, message);
      }
    }
    FlushCalls();
    FlushSystem();
    return std::move(out_);
  }

 private:
  Json Content(std::string text) const {
    if (!traits_.parts) return text;
    return Json::array({{{"type", "text"}, {"text", std::move(text)}}});
  }

  void AddText(const std::string& role, const Json& message) {
    FlushCalls();
    std::string text = ContentText(message["content"], kBetweenParts);
    if (role == "system" && !traits_.system) {
      AddLine(std::move(text), &system_);
      return;
    }
    if (role == "user" && !system_.empty()) {
      AddLine(std::move(text), &system_);
      text = std::exchange(system_, std::string());
    }
    Json shaped = message;
    shaped["role"] = role;
    shaped["content"] = Content(std::move(text));
    out_.push_back(std::move(shaped));
  }

  static void AddLine(std::string line, std::string* text) {
    if (!text->empty() && !line.empty()) *text += '\n';
    *text += line;
  }

  // Emits pending system messages if no user message follows before another role speaks.
  void FlushSystem() {
    if (system_.empty()) return;
    out_.push_back({{"role", "user"}, {"content", Content(std::exchange(system_, std::string()))}});
  }

  std::string Id(const std::string& id) const { return traits_.short_ids ? ShortId(id) : id; }

  Json ShapedCall(const Json& call, size_t index) {
    Json shaped = call;
    std::string id = StringMember(call, "id");
    if (id.empty()) id = StrCat("call_", index);
    const std::string name = call["function"]["name"];
    names_[id] = name;
    shaped["id"] = Id(id);
    shaped["type"] = "function";
    const auto given = call["function"].find("arguments");
    Json arguments = ParsedArguments(given == call["function"].end() ? Json() : *given);
    if (traits_.string_arguments && arguments.is_object()) arguments = JsonText(arguments);
    shaped["function"]["arguments"] = std::move(arguments);
    return shaped;
  }

  void AddAssistant(const Json& message) {
    FlushCalls();
    FlushSystem();
    Json shaped = message;
    std::string text = ContentText(message.value("content", Json()));
    const bool has_calls = message.contains("tool_calls") && message["tool_calls"].is_array() &&
                           !message["tool_calls"].empty();
    Json calls = Json::array();
    if (has_calls) {
      for (const Json& call : message["tool_calls"]) {
        calls.push_back(ShapedCall(call, calls.size()));
      }
    }
    shaped.erase("tool_calls");
    if (has_calls && !traits_.calls) {
      if (!text.empty()) text += '\n';
      text += CallsText(calls, syntax_);
    }
    AddReasoning(message, has_calls, &shaped, &text);
    const bool null = text.empty() && has_calls && traits_.calls && traits_.null_content;
    shaped["content"] = null ? Json(nullptr) : Content(std::move(text));
    if (has_calls && traits_.calls) shaped["tool_calls"] = std::move(calls);
    if (has_calls && traits_.calls && !traits_.several_calls && shaped["tool_calls"].size() > 1) {
      pending_ = std::move(shaped);
    } else {
      out_.push_back(std::move(shaped));
    }
  }

  void AddReasoning(const Json& message, bool has_calls, Json* shaped, std::string* text) const {
    std::string reasoning = ReasoningText(message);
    EraseReasoning(shaped);
    if (reasoning.empty()) return;
    switch (traits_.reasoning) {
      case TemplateTraits::Reasoning::kDropped:
        break;
      case TemplateTraits::Reasoning::kReasoningContent:
        (*shaped)["reasoning_content"] = std::move(reasoning);
        break;
      case TemplateTraits::Reasoning::kThinking:
        // Such a template refuses both beside calls.
        if (!has_calls || text->empty()) (*shaped)["thinking"] = std::move(reasoning);
        break;
      case TemplateTraits::Reasoning::kInline:
        *text = StrCat(syntax_.reasoning->open, "\n", reasoning, "\n", syntax_.reasoning->close,
                       "\n\n", *text);
        break;
    }
  }

  void AddResult(const Json& message) {
    FlushSystem();
    Json shaped = message;
    const std::string id = StringMember(message, "tool_call_id");
    if (const auto name = names_.find(id); name != names_.end() && !shaped.contains("name")) {
      shaped["name"] = name->second;
    }
    if (!id.empty()) shaped["tool_call_id"] = Id(id);
    std::string text = ContentText(message["content"], kBetweenParts);
    if (traits_.results) {
      shaped["content"] = Content(std::move(text));
      if (!TakePendingCall(shaped)) out_.push_back(std::move(shaped));
      return;
    }
    // As a user message with all results in it.
    FlushCalls();
    text = StrCat("<tool_response>\n", text, "\n</tool_response>");
    if (results_at_ == out_.size() && results_at_ > 0) {
      Json& before = out_.back();
      before["content"] = Content(StrCat(ContentText(before["content"]), "\n", text));
      return;
    }
    out_.push_back({{"role", "user"}, {"content", Content(std::move(text))}});
    results_at_ = out_.size();
  }

  // For templates that show one call per message, each call becomes a message followed by its
  // result.
  bool TakePendingCall(const Json& result) {
    if (pending_.is_null()) return false;
    Json& calls = pending_["tool_calls"];
    size_t i = 0;
    while (i < calls.size() && calls[i]["id"] != result.value("tool_call_id", "")) ++i;
    if (i == calls.size()) {
      FlushCalls();
      return false;
    }
    PushCall(i);
    out_.push_back(result);
    return true;
  }

  void PushCall(size_t i) {
    Json message = pending_;
    message["tool_calls"] = Json::array({pending_["tool_calls"][i]});
    out_.push_back(std::move(message));
    pending_["tool_calls"].erase(i);
    // Text before the calls appears only once.
    pending_["content"] = traits_.null_content ? Json(nullptr) : Content("");
    for (const char* const key : {"reasoning_content", "thinking"}) pending_.erase(key);
    if (pending_["tool_calls"].empty()) pending_ = nullptr;
  }

  void FlushCalls() {
    while (!pending_.is_null()) PushCall(0);
  }

  const TemplateTraits& traits_;
  const ReplySyntax& syntax_;
  Json out_ = Json::array();
  std::string system_;                        // for templates without a system role
  Json pending_;                              // a message with calls not yet emitted
  size_t results_at_ = 0;                     // number of messages after the last result
  std::map<std::string, std::string> names_;  // functions, by call id
};

// Puts text before the whole conversation.
void PutInFront(const std::string& text, const TemplateTraits& traits, Json* messages) {
  const auto content = [&](const std::string& whole) {
    return traits.parts ? Json::array({{{"type", "text"}, {"text", whole}}}) : Json(whole);
  };
  Json& first = (*messages)[0];
  const bool to_system = traits.system && first["role"] == "system";
  const bool to_user = !traits.system && first["role"] == "user";
  if (to_system || to_user) {
    const std::string said = ContentText(first["content"]);
    first["content"] = content(to_system ? StrCat(said, "\n\n", text) : StrCat(text, "\n\n", said));
    return;
  }
  const char* const role = traits.system ? "system" : "user";
  messages->insert(messages->begin(), Json{{"role", role}, {"content", content(text)}});
}

}  // namespace

std::string ContentText(const Json& content, std::string_view separator) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const Json& part : content) {
    if (!text.empty()) text += separator;
    const char* const member = part["type"] == "refusal" ? "refusal" : "text";
    text += part[member].get_ref<const std::string&>();
  }
  return text;
}

std::string ReasoningText(const Json& message) {
  for (const char* const name : kReasoningNames) {
    std::string text = StringMember(message, name);
    if (!text.empty()) return text;
  }
  return "";
}

void EraseReasoning(Json* message) {
  for (const char* const name : kReasoningNames) message->erase(name);
}

Json ShapeMessages(const Json& messages, const Json& tools, const TemplateTraits& traits,
                   const ReplySyntax& syntax) {
  Json shaped = Shaper(traits, syntax).Shape(messages);
  if (tools.is_array() && !tools.empty() && !traits.tools) {
    PutInFront(ToolsText(tools, syntax), traits, &shaped);
  }
  return shaped;
}

}  // namespace weft
