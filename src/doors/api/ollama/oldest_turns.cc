#include "doors/api/ollama/oldest_turns.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "json/json_text.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

// Messages that are dropped together.
struct Group {
  std::vector<size_t> messages;
  int64_t n_tokens = 0;
};

bool IsInstruction(const ChatMessage& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

// About how many tokens it takes.
int64_t CountTokens(const Model& model, const ChatMessage& message) {
  std::string text = StrCat(message.reasoning, TextOf(message));
  for (const ToolCall& call : message.calls) {
    StrAppend(&text, call.name, CompactJson(call.arguments));
  }
  return static_cast<int64_t>(
      model.Encode(text, /*add_special=*/false, /*parse_special=*/false).size());
}

// What may be dropped, the oldest first: turns, each from a user's message on; and after the last
// user message, answers with the results of their calls.
std::vector<Group> DroppableGroups(const Model& model, const std::vector<ChatMessage>& messages) {
  size_t last_user = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == Role::kUser) last_user = i;
  }
  std::vector<Group> groups;
  bool is_open = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (IsInstruction(messages[i])) continue;
    const Role begins =
        last_user < messages.size() && i > last_user ? Role::kAssistant : Role::kUser;
    if (i == last_user) {
      is_open = false;
      continue;
    }
    if (!is_open || messages[i].role == begins) groups.emplace_back();
    is_open = true;
    groups.back().messages.push_back(i);
    groups.back().n_tokens += CountTokens(model, messages[i]);
  }
  const bool has_last = !groups.empty() && groups.back().messages.back() == messages.size() - 1;
  if (has_last) groups.pop_back();
  return groups;
}

// The conversation without the first `n_groups`.
void Drop(const std::vector<Group>& groups, size_t n_groups,
          const std::vector<ChatMessage>& messages, Ask* ask) {
  std::vector<bool> is_dropped(messages.size());
  for (size_t i = 0; i < n_groups; ++i) {
    for (const size_t message : groups[i].messages) is_dropped[message] = true;
  }
  std::vector<ChatMessage>& kept = ask->chat.conversation.messages;
  kept.clear();
  ask->list.places.clear();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (is_dropped[i]) continue;
    kept.push_back(messages[i]);
    ask->list.places.push_back(i);
  }
}

// How many groups to drop to lose at least `step`, 2 * `step`, ... tokens, and at last all.
std::vector<size_t> Cuts(const std::vector<Group>& groups, int64_t step) {
  std::vector<size_t> cuts;
  int64_t n_tokens = 0, next = step;
  for (size_t i = 0; i < groups.size(); ++i) {
    n_tokens += groups[i].n_tokens;
    if (n_tokens < next && i + 1 < groups.size()) continue;
    cuts.push_back(i + 1);
    next = (n_tokens / step + 1) * step;
  }
  return cuts;
}

// Sizes of a prompt, in tokens.
struct Limits {
  explicit Limits(int64_t n_context)
      : context(n_context),
        most(n_context - n_context / 8),
        quarter(std::max<int64_t>(n_context / 4, 1)) {}

  int64_t context;
  int64_t most;  // leaves room for an answer
  int64_t quarter;
};

// Drops tokens before a generation's prompt. Returns how many.
int64_t DropOldestTokens(const Limits& limits, int32_t bos, int64_t n_prompt,
                         std::vector<int32_t>* before) {
  const int64_t has_bos = before->front() == bos ? 1 : 0;
  const auto n_before = static_cast<int64_t>(before->size());
  const int64_t n_over = std::max<int64_t>(n_prompt + n_before - limits.most, 1);
  const int64_t n_quarters = (n_over + limits.quarter - 1) / limits.quarter;
  const int64_t n_dropped = std::min(n_quarters * limits.quarter, n_before - has_bos);
  before->erase(before->begin() + has_bos, before->begin() + has_bos + n_dropped);
  return n_dropped;
}

}  // namespace

std::string DropOldestTurns(Host& host, Ask* ask) {
  const Limits limits(host.model().context_tokens());
  const std::string why = StrCat(", as the context has ", limits.context, " tokens");
  // The most if the template does not take what is left.
  const auto size = [&] { return host.answerer().CountTokens(*ask).value_or(INT64_MAX); };
  if (!ask->before.empty()) {
    const int64_t n_prompt = size();
    if (n_prompt >= limits.context) return "";
    const int64_t n_dropped =
        DropOldestTokens(limits, host.model().tokenizer()->bos(), n_prompt, &ask->before);
    return StrCat("the oldest ", n_dropped, " tokens of context were dropped", why);
  }
  std::vector<ChatMessage>& messages = ask->chat.conversation.messages;
  const std::vector<ChatMessage> whole = messages;
  const std::vector<Group> groups = DroppableGroups(host.model(), whole);
  const std::vector<size_t> cuts = Cuts(groups, limits.quarter);
  if (cuts.empty()) return "";
  // The first cut that is enough. Each trial renders the conversation.
  const auto enough = std::ranges::partition_point(cuts, [&](size_t n_groups) {
    Drop(groups, n_groups, whole, ask);
    return size() > limits.most;
  });
  Drop(groups, enough != cuts.end() ? *enough : cuts.back(), whole, ask);
  if (enough == cuts.end() && size() >= limits.context) {
    Drop(groups, 0, whole, ask);
    return "";
  }
  return StrCat("the oldest ", whole.size() - messages.size(), " messages were dropped", why);
}

}  // namespace weft::serve
