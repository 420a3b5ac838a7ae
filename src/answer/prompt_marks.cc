#include "answer/prompt_marks.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "answer/prompt_maker.h"
#include "base/tokens.h"

namespace weft::serve {
namespace {

using std::chrono::seconds;

bool IsWhole(const Conversation& conversation, const PromptMark& mark) {
  const std::vector<ChatMessage>& messages = conversation.messages;
  if (messages.empty() || mark.n_messages > messages.size()) return true;
  return mark.n_messages == messages.size() && mark.n_bytes >= TextOf(messages.back()).size();
}

// How many tokens a conversation that ends with the mark has in common with the prompt.
int64_t TokensBefore(PromptMaker& prompts, std::string_view domain, const ChatRequest& chat,
                     const PromptMark& mark, std::span<const TokenId> prompt) {
  const std::vector<ChatMessage>& messages = chat.conversation.messages;
  ChatRequest cut{.conversation = {.messages = {}, .tools = chat.conversation.tools},
                  .add_generation_prompt = false,
                  .variables = chat.variables,
                  .past_thoughts = chat.past_thoughts,
                  .render = chat.render};
  std::vector<ChatMessage>& kept = cut.conversation.messages;
  kept.assign(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(mark.n_messages));
  if (!kept.empty() && mark.n_bytes != PromptMark::kAll) {
    kept.back().parts = {TextOf(kept.back()).substr(0, mark.n_bytes)};
  }
  // Templates want a user to speak; the texts part where it does.
  const auto is_system = [](const ChatMessage& message) { return message.role == Role::kSystem; };
  if (std::ranges::all_of(kept, is_system)) kept.push_back({.role = Role::kUser, .parts = {"."}});
  const auto known = prompts.Make(domain, std::move(cut));
  return known.ok() ? CommonLength(known->tokens, prompt) : 0;
}

}  // namespace

void PlaceMarks(PromptMaker& prompts, std::string_view domain, const ChatRequest& chat,
                std::span<const PromptMark> marks, int64_t n_prompt, TurnOptions* turn) {
  seconds whole{0};
  std::vector<PromptMark> inside;
  for (const PromptMark& mark : marks) {
    if (IsWhole(chat.conversation, mark)) {
      whole = std::max(whole, mark.keep_for);
    } else {
      inside.push_back(mark);
    }
  }
  const auto place = [](const PromptMark& mark) {
    return std::tuple(mark.n_messages, mark.n_bytes);
  };
  std::ranges::stable_sort(inside, {}, place);
  if (inside.size() > 2) inside.erase(inside.begin() + 1, inside.end() - 1);
  if (inside.size() == 2 && place(inside[0]) == place(inside[1])) {
    inside[0].keep_for = std::max(inside[0].keep_for, inside[1].keep_for);
    inside.pop_back();
  }
  // Vectors in place of tokens have no text to compare.
  if (turn->parts != nullptr) inside.clear();
  for (const PromptMark& mark : inside) {
    const int64_t n_tokens = TokensBefore(prompts, domain, chat, mark, turn->tokens);
    if (n_tokens > 0) turn->prefix_marks.push_back({n_tokens, mark.keep_for});
  }
  if (whole.count() > 0 && n_prompt > 0) turn->prefix_marks.push_back({n_prompt, whole});
}

}  // namespace weft::serve
