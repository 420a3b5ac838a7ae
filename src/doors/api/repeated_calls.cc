#include "doors/api/repeated_calls.h"

#include <algorithm>
#include <cstddef>

#include "base/strings.h"
#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

constexpr int kMaxInARow = 2;  // more are told

// However a client writes the arguments.
bool IsSameCall(const ToolCall& a, const ToolCall& b) {
  return a.name == b.name &&
         (a.arguments == b.arguments || nlohmann::json(a.arguments) == nlohmann::json(b.arguments));
}

// A call and its result.
struct Round {
  const ToolCall* call = nullptr;
  size_t result = 0;   // the message
  int n_in_a_row = 0;  // equal ones that end with this one

  bool IsSame(const Round& other, const std::vector<ChatMessage>& messages) const {
    return messages[result].parts == messages[other.result].parts && IsSameCall(*call, *other.call);
  }
};

// In the order of the results.
std::vector<Round> RoundsOf(const std::vector<ChatMessage>& messages) {
  std::vector<Round> rounds;
  std::vector<const ToolCall*> open;  // the last message's calls
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!message.calls.empty()) {
      open.clear();
      for (const ToolCall& call : message.calls) open.push_back(&call);
    }
    if (message.role != Role::kTool) continue;
    const auto call = std::ranges::find_if(open, [&](const ToolCall* one) {
      return message.call_id.empty() || one->id == message.call_id;
    });
    if (call == open.end()) continue;
    Round round{.call = *call, .result = i, .n_in_a_row = 1};
    open.erase(call);
    if (!rounds.empty() && round.IsSame(rounds.back(), messages)) {
      round.n_in_a_row += rounds.back().n_in_a_row;
    }
    rounds.push_back(round);
  }
  return rounds;
}

void AddNote(int n, ChatMessage* result) {
  if (result->parts.empty()) result->parts.emplace_back();
  StrAppend(&result->parts.back(), "\n\n[This call has been made ", n,
            " times in a row with the same result. Do not make it again: answer, or do something "
            "else.]");
}

}  // namespace

void TellRepeatedCalls(bool add_notes, Conversation* conversation,
                       std::vector<std::string>* warnings) {
  std::vector<ChatMessage>& messages = conversation->messages;
  const std::vector<Round> rounds = RoundsOf(messages);
  if (rounds.empty()) return;
  const Round& last = rounds.back();
  const auto is_answer = [](const ChatMessage& one) { return one.role == Role::kAssistant; };
  const bool goes_on = std::none_of(messages.begin() + static_cast<std::ptrdiff_t>(last.result),
                                    messages.end(), is_answer);
  if (goes_on && last.n_in_a_row > kMaxInARow) {
    warnings->push_back(StrCat("the model has called ", HeaderText(last.call->name), " ",
                               last.n_in_a_row, " times in a row with the same result"));
  }
  if (!add_notes) return;
  for (const Round& round : rounds) {
    if (round.n_in_a_row > kMaxInARow) AddNote(round.n_in_a_row, &messages[round.result]);
  }
}

}  // namespace weft::serve
