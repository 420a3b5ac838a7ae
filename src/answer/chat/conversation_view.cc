#include "answer/chat/conversation_view.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "answer/chat/call_text.h"
#include "base/strings.h"
#include "jinja/json_value.h"

namespace weft {
namespace {

using jinja::DictObject;
using jinja::Meter;
using jinja::Value;
using Json = nlohmann::ordered_json;

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

ShownText Shown(const ChatMessage& message) {
  if (message.parts.size() == 1) return {.given = message.parts.data()};
  return {.made = TextOf(message)};
}

class Shaper {
 public:
  Shaper(const TemplateTraits& traits, const ReplySyntax& syntax)
      : traits_(traits), syntax_(syntax) {}

  std::vector<ShownMessage> Shape(std::span<const ChatMessage* const> messages) {
    for (const ChatMessage* const message : messages) {
      switch (message->role) {
        case Role::kAssistant:
          AddAnswer(*message);
          break;
        case Role::kTool:
          AddResult(*message);
          break;
        case Role::kDeveloper:
          AddText(traits_.developer ? Role::kDeveloper : Role::kSystem, *message);
          break;
        default:
          AddText(message->role, *message);
      }
    }
    FlushCalls();
    FlushSystem();
    return std::move(out_);
  }

 private:
  void AddText(Role role, const ChatMessage& message) {
    FlushCalls();
    ShownText text = Shown(message);
    if (role == Role::kSystem && !traits_.system) return AddLine(text.view());
    if (role == Role::kUser && !system_.empty()) {
      AddLine(text.view());
      text = {.made = std::exchange(system_, {})};
    }
    out_.push_back({.role = role, .from = &message, .text = std::move(text)});
  }

  void AddLine(std::string_view line) {
    if (!system_.empty() && !line.empty()) system_ += '\n';
    system_ += line;
  }

  // Emits pending system messages if no user message follows before another role speaks.
  void FlushSystem() {
    if (!system_.empty()) out_.push_back({.text = {.made = std::exchange(system_, {})}});
  }

  std::string Id(const std::string& id) const { return traits_.short_ids ? ShortId(id) : id; }

  std::vector<ShownCall> Calls(const std::vector<ToolCall>& calls) {
    std::vector<ShownCall> shown;
    for (const ToolCall& call : calls) {
      const std::string id = call.id.empty() ? StrCat("call_", shown.size()) : call.id;
      functions_[id] = call.name;
      shown.push_back({.call = &call, .id = Id(id)});
      if (traits_.string_arguments && call.arguments.is_object()) {
        shown.back().arguments_text = JsonText(call.arguments);
      }
    }
    return shown;
  }

  void AddAnswer(const ChatMessage& message) {
    FlushCalls();
    FlushSystem();
    ShownMessage shown{.role = Role::kAssistant, .from = &message, .text = Shown(message)};
    std::vector<ShownCall> calls = Calls(message.calls);
    if (!calls.empty() && !traits_.calls) {
      shown.text = {.made = StrCat(shown.text.view(), shown.text.view().empty() ? "" : "\n",
                                   CallsText(message.calls, syntax_))};
    }
    AddReasoning(message, &shown);
    if (!calls.empty() && traits_.calls) {
      shown.null_content = shown.text.view().empty() && traits_.null_content;
      shown.calls = std::move(calls);
    }
    if (shown.calls.size() > 1 && !traits_.several_calls) {
      pending_ = std::move(shown);
    } else {
      out_.push_back(std::move(shown));
    }
  }

  void AddReasoning(const ChatMessage& message, ShownMessage* shown) const {
    if (message.reasoning.empty()) return;
    switch (traits_.reasoning) {
      case TemplateTraits::Reasoning::kDropped:
        break;
      case TemplateTraits::Reasoning::kReasoningContent:
        shown->reasoning_name = "reasoning_content";
        break;
      case TemplateTraits::Reasoning::kThinking:
        // Such a template refuses both beside calls.
        if (message.calls.empty() || shown->text.view().empty()) shown->reasoning_name = "thinking";
        break;
      case TemplateTraits::Reasoning::kInline:
        shown->text = {.made = StrCat(syntax_.reasoning->open, "\n", message.reasoning, "\n",
                                      syntax_.reasoning->close, "\n\n", shown->text.view())};
        break;
    }
  }

  void AddResult(const ChatMessage& message) {
    FlushSystem();
    ShownMessage shown{.role = Role::kTool, .from = &message, .text = Shown(message)};
    if (!message.fields.contains("name")) {
      if (const auto it = functions_.find(message.call_id); it != functions_.end()) {
        shown.function = it->second;
      }
    }
    if (!message.call_id.empty()) shown.call_id = Id(message.call_id);
    if (traits_.results) {
      TakePendingCall(shown.call_id);
      out_.push_back(std::move(shown));
      return;
    }
    // As a user message with all results in it.
    FlushCalls();
    std::string text = StrCat("<tool_response>\n", shown.text.view(), "\n</tool_response>");
    if (results_at_ == out_.size() && results_at_ > 0) {
      StrAppend(&out_.back().text.made, "\n", text);
      return;
    }
    out_.push_back({.text = {.made = std::move(text)}});
    results_at_ = out_.size();
  }

  // For templates that show one call per message, each call becomes a message followed by its
  // result.
  void TakePendingCall(const std::string& id) {
    if (!pending_) return;
    const auto it = std::ranges::find(pending_->calls, id, &ShownCall::id);
    if (it == pending_->calls.end()) return FlushCalls();
    PushCall(static_cast<size_t>(it - pending_->calls.begin()));
  }

  void PushCall(size_t i) {
    std::vector<ShownCall>& calls = pending_->calls;
    // Text and reasoning before the calls appear only once.
    ShownMessage message{
        .role = Role::kAssistant,
        .from = pending_->from,
        .text = std::exchange(pending_->text, {}),
        .null_content = std::exchange(pending_->null_content, traits_.null_content),
        .reasoning_name = std::exchange(pending_->reasoning_name, nullptr)};
    message.calls.push_back(std::move(calls[i]));
    out_.push_back(std::move(message));
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
    if (calls.empty()) pending_.reset();
  }

  void FlushCalls() {
    while (pending_) PushCall(0);
  }

  const TemplateTraits& traits_;
  const ReplySyntax& syntax_;
  std::vector<ShownMessage> out_;
  std::string system_;                                 // for templates without a system role
  std::optional<ShownMessage> pending_;                // a message with calls not yet emitted
  size_t results_at_ = 0;                              // number of messages after the last result
  std::map<std::string, std::string_view> functions_;  // by call id
};

// Puts text before the whole conversation.
void PutInFront(const std::string& text, const TemplateTraits& traits,
                std::vector<ShownMessage>* messages) {
  const Role role = traits.system ? Role::kSystem : Role::kUser;
  ShownMessage& first = messages->front();
  if (first.role != role) {
    messages->insert(messages->begin(), {.role = role, .text = {.made = text}});
    return;
  }
  const std::string_view said = first.text.view();
  first.text = {.made = traits.system ? StrCat(said, "\n\n", text) : StrCat(text, "\n\n", said)};
}

using TypedMembers = std::vector<std::pair<std::string_view, Value>>;

// `fields`, or `usual` if there are none, with `typed` in their places or else after the rest.
Value Filled(const TemplateFields& given, const Json& usual, const TypedMembers& typed, int depth,
             Meter* meter) {
  const Json& fields = given.is_null() ? usual : given;
  auto dict = std::make_shared<DictObject>(meter);
  for (auto it = fields.begin(); it != fields.end() && meter->ok(); ++it) {
    const auto own =
        std::ranges::find(typed, std::string_view(it.key()), &TypedMembers::value_type::first);
    dict->Set(Value::Borrowed(it.key()),
              own != typed.end() ? own->second : JsonValue(*it, depth + 1, meter), meter);
  }
  for (const auto& [key, value] : typed) {
    if (!fields.contains(key)) dict->Set(Value::Borrowed(key), value, meter);
  }
  return Value::Dict(std::move(dict));
}

Value CallValue(const ShownCall& shown, Meter* meter) {
  static const Json usual_function = {{"name", nullptr}, {"arguments", nullptr}};
  static const Json usual = {{"id", nullptr}, {"type", nullptr}, {"function", nullptr}};
  constexpr int kDepth = 4, kFunctionDepth = 5;
  const ToolCall& call = *shown.call;
  Value arguments = shown.arguments_text ? Value::Borrowed(*shown.arguments_text)
                                         : JsonValue(call.arguments, kFunctionDepth + 1, meter);
  Value function =
      Filled(call.function_fields, usual_function,
             {{"name", Value::Borrowed(call.name)}, {"arguments", std::move(arguments)}},
             kFunctionDepth, meter);
  return Filled(call.fields, usual,
                {{"id", Value::Borrowed(shown.id)},
                 {"type", Value::Borrowed("function")},
                 {"function", std::move(function)}},
                kDepth, meter);
}

}  // namespace

ConversationView::ConversationView(std::span<const ChatMessage* const> messages,
                                   const ToolList& tools, const TemplateTraits& traits,
                                   const ReplySyntax& syntax, std::span<const std::string> pictures)
    : tools_(tools),
      traits_(traits),
      pictures_(pictures),
      messages_(Shaper(traits, syntax).Shape(messages)) {
  if (!tools.empty() && !traits.tools) PutInFront(ToolsText(tools, syntax), traits, &messages_);
}

Value ConversationView::Content(const ShownMessage& message, Meter* meter) const {
  if (message.null_content) return Value::None();
  const std::string_view text = message.text.view();
  const auto is_in = [&](const std::string& mark) { return text.find(mark) != text.npos; };
  const bool with_pictures = message.role == Role::kUser && !traits_.picture.empty() &&
                             std::ranges::any_of(pictures_, is_in);
  if (!traits_.parts && !with_pictures) return Value::Borrowed(text);
  return Parts(text, with_pictures, meter);
}

// The text after a picture begins with the picture's mark, which shows where the picture is in the
// rendered text.
Value ConversationView::Parts(std::string_view text, bool with_pictures, Meter* meter) const {
  std::vector<Value> parts;
  const auto add = [&](std::string_view type, std::string_view said) {
    auto part = std::make_shared<DictObject>(meter);
    part->Set(Value::Borrowed("type"), Value::Borrowed(type), meter);
    if (type == "text") part->Set(Value::Borrowed("text"), Value::Borrowed(said), meter);
    parts.push_back(Value::Dict(std::move(part)));
  };
  std::vector<size_t> places;
  for (const std::string& mark : pictures_) {
    const size_t at = with_pictures ? text.find(mark) : text.npos;
    if (at != text.npos) places.push_back(at);
  }
  std::ranges::sort(places);
  if (places.empty() || places[0] > 0)
    add("text", text.substr(0, places.empty() ? text.npos : places[0]));
  for (size_t i = 0; i < places.size(); ++i) {
    add("image", "");
    const size_t end = i + 1 < places.size() ? places[i + 1] : text.size();
    add("text", text.substr(places[i], end - places[i]));
  }
  return Value::List(std::move(parts), meter);
}

Value ConversationView::Message(const ShownMessage& message, Meter* meter) const {
  static const Json usual = {{"role", nullptr}, {"content", nullptr}};
  static const Json usual_result = {{"role", nullptr}, {"tool_call_id", ""}, {"content", nullptr}};
  static const TemplateFields none;
  constexpr int kDepth = 2;
  TypedMembers typed = {{"role", Value::Borrowed(NameOf(message.role))}};
  const auto add = [&](const char* key, std::string_view text) {
    if (!text.empty()) typed.emplace_back(key, Value::Borrowed(text));
  };
  add("tool_call_id", message.call_id);
  add("name", message.function);
  if (message.reasoning_name != nullptr) add(message.reasoning_name, message.from->reasoning);
  typed.emplace_back("content", Content(message, meter));
  if (!message.calls.empty()) {
    std::vector<Value> calls;
    for (const ShownCall& call : message.calls) calls.push_back(CallValue(call, meter));
    typed.emplace_back("tool_calls", Value::List(std::move(calls), meter));
  }
  return Filled(message.from == nullptr ? none : message.from->fields,
                message.role == Role::kTool ? usual_result : usual, typed, kDepth, meter);
}

void ConversationView::AddTo(DictObject* variables, Meter* meter) const {
  constexpr int kToolDepth = 2;
  const auto set = [&](const char* name, Value value) {
    variables->Set(Value::Borrowed(name), std::move(value), meter);
  };
  std::vector<Value> messages, tools;
  for (const ShownMessage& message : messages_) messages.push_back(Message(message, meter));
  set("messages", Value::List(std::move(messages), meter));
  if (traits_.tools && !tools_.empty()) {
    for (const auto& tool : tools_) {
      tools.push_back(JsonValue(tool->definition, kToolDepth, meter));
    }
    set("tools", Value::List(std::move(tools), meter));
  } else if (!traits_.omits_no_tools) {
    set("tools", Value::None());
  }
}

}  // namespace weft
