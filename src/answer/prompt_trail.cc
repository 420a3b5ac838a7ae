#include "answer/prompt_trail.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"

namespace weft::serve {
namespace {

bool IsInsideCharacter(std::string_view text, size_t at) {
  return at < text.size() && IsContinuationByte(text[at]);
}

// The line around a position, cut at both ends if it is long.
std::string LineAt(std::string_view text, size_t at) {
  constexpr size_t kEachWay = 80;
  const size_t line_break = at > 0 ? text.rfind('\n', at - 1) : std::string_view::npos;
  const size_t line = line_break == std::string_view::npos ? 0 : line_break + 1;
  const size_t line_end = std::min(text.find('\n', at), text.size());
  size_t begin = at - line > kEachWay ? at - kEachWay : line;
  size_t end = line_end - at > kEachWay ? at + kEachWay : line_end;
  while (begin < at && IsInsideCharacter(text, begin)) ++begin;
  while (end < line_end && IsInsideCharacter(text, end)) ++end;
  return StrCat(begin > line ? "..." : "", text.substr(begin, end - begin),
                end < line_end ? "..." : "");
}

ItemChange CauseOf(const EarlierPrompt& earlier, const PromptItems& items, const ChatRequest& chat,
                   std::string_view text) {
  const size_t at = earlier.common_bytes;
  const PromptItems& before = *earlier.submitted.items;
  const bool grew = items.messages.size() > before.messages.size();
  if (at >= earlier.submitted.prompt_bytes && grew) {
    return {.kind = ItemChange::Kind::kReply, .index = before.messages.size()};
  }
  return CauseAt(ChangesBetween(before, items), before, chat, earlier.prompt->text, text, at);
}

bool IsAnotherConversation(const EarlierPrompt& earlier, const PromptItems& items,
                           std::string_view text) {
  const size_t shorter = std::min(earlier.submitted.prompt_bytes, text.size());
  return earlier.common_bytes < shorter / 4 && !ShareAnItem(*earlier.submitted.items, items);
}

std::optional<PromptDifference> FirstDifference(const EarlierPrompt& earlier,
                                                const PromptItems& items, const ChatRequest& chat,
                                                std::string_view text) {
  const std::string_view former =
      std::string_view(earlier.prompt->text).substr(0, earlier.submitted.end_bytes);
  size_t at = earlier.common_bytes;
  if (at == former.size() || at == text.size()) return std::nullopt;
  // Two characters may begin with the same bytes.
  while (at > 0 && IsInsideCharacter(text, at)) --at;
  return PromptDifference{.cause = CauseOf(earlier, items, chat, text),
                          .before = LineAt(former, at),
                          .now = LineAt(text, at)};
}

}  // namespace

std::string ClientList::PathOf(size_t message) const {
  size_t place = message;
  if (message < places.size()) {
    place = places[message];
  } else if (!places.empty()) {
    place = places.back() + 1 + (message - places.size());
  }
  return StrCat(name, "[", place, "]");
}

PromptTrail MakeTrail(EarlierPrompt earlier, std::shared_ptr<const PromptItems> items,
                      const ChatRequest& chat, std::string_view text, ClientList list) {
  PromptTrail trail{.items = std::move(items), .list = std::move(list)};
  if (earlier.prompt == nullptr || IsAnotherConversation(earlier, *trail.items, text)) return trail;
  trail.difference = FirstDifference(earlier, *trail.items, chat, text);
  trail.earlier = std::move(earlier);
  return trail;
}

}  // namespace weft::serve
