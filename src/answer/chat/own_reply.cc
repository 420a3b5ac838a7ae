#include "answer/chat/own_reply.h"

#include <xxhash.h>

#include <algorithm>

#include "nlohmann/json.hpp"

namespace weft {
namespace {

// More than a template writes between a message and the reply.
constexpr size_t kTailBytes = 512;

// Objects are equal whatever the order of their members.
bool SameJson(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    return std::all_of(a.items().begin(), a.items().end(), [&](const auto& member) {
      const auto it = b.find(member.key());
      return it != b.end() && SameJson(member.value(), *it);
    });
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameJson);
  }
  return a == b;
}

// The call of the message that is `own`; the one at the same place if ids do not tell.
const ToolCall* CallOf(const ChatMessage& message, const std::vector<ToolCall>& own, size_t i) {
  const auto it = std::ranges::find(message.calls, own[i].id, &ToolCall::id);
  if (!own[i].id.empty() && it != message.calls.end()) return &*it;
  const ToolCall& at = message.calls[i];
  // Its id is another reply's, or that of another call.
  const bool is_taken = std::ranges::count(own, at.id, &ToolCall::id) > 0 && at.id != own[i].id;
  return is_taken ? nullptr : &at;
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

uint64_t HashOfPrompt(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

PromptEnd EndOfPrompt(std::string_view text) {
  const size_t tail = std::min(text.size(), kTailBytes);
  const std::string_view head = text.substr(0, text.size() - tail);
  return {.bytes = text.size(),
          .hash = HashOfPrompt(head),
          .tail = std::string(text.substr(head.size()))};
}

bool SaysTheSame(const ChatMessage& message, const OwnReply& reply) {
  if (message.role != Role::kAssistant || message.calls.size() != reply.calls.size() ||
      Trimmed(TextOf(message)) != Trimmed(reply.content)) {
    return false;
  }
  const std::string_view reasoning = Trimmed(message.reasoning);
  if (!reasoning.empty() && reasoning != Trimmed(reply.reasoning)) return false;
  for (size_t i = 0; i < reply.calls.size(); ++i) {
    const ToolCall* const call = CallOf(message, reply.calls, i);
    if (call == nullptr || call->name != reply.calls[i].name ||
        !SameJson(call->arguments, reply.calls[i].arguments)) {
      return false;
    }
  }
  return true;
}

ChatMessage InOwnWords(const ChatMessage& message, const OwnReply& reply) {
  ChatMessage own = message;
  own.reasoning = reply.reasoning;
  own.parts = {reply.content};
  own.calls.clear();
  for (size_t i = 0; i < reply.calls.size(); ++i) {
    own.calls.push_back(*CallOf(message, reply.calls, i));
    own.calls.back().arguments = reply.calls[i].arguments;
  }
  return own;
}

}  // namespace weft
