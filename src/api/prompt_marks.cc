#include "api/prompt_marks.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/known_replies.h"
#include "base/strings.h"
#include "base/tokens.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;
using std::chrono::seconds;

constexpr seconds kMostKept = std::chrono::hours(7 * 24);
constexpr seconds kAnthropicKeeps = std::chrono::minutes(5);
constexpr seconds kOpenAiKeeps = std::chrono::minutes(30);

std::optional<seconds> SecondsOf(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const int64_t each = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || each == 0 || count < 1) return std::nullopt;
  if (count > kMostKept.count() / each) return std::nullopt;
  return seconds(count * each);
}

bool IsWhole(const Conversation& conversation, const PromptMark& mark) {
  const std::vector<ChatMessage>& messages = conversation.messages;
  if (messages.empty() || mark.n_messages > messages.size()) return true;
  return mark.n_messages == messages.size() && mark.n_bytes >= TextOf(messages.back()).size();
}

// How many tokens a conversation that ends with the mark has in common with the prompt.
int64_t TokensBefore(Host& host, std::string_view domain, const ChatRequest& chat,
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
  const auto known = RenderKnown(host, domain, std::move(cut));
  return known.ok() ? CommonLength(known->tokens, prompt) : 0;
}

// Where the marked part that is furthest along ends in the message's text; kAll: with the message;
// none: no part is marked. Parts that are no text, such as pictures left out, have no length.
std::optional<size_t> EndOfMarked(const ordered_json& parts, const std::string& text) {
  std::optional<size_t> end;
  size_t at = 0;
  for (const ordered_json& part : parts) {
    const std::string own = StringOr(part, "text");
    const size_t found = text.find(own, at);
    if (found != text.npos) at = found + own.size();
    if (ValueIn(part, "prompt_cache_breakpoint").is_object()) {
      end = found != text.npos ? at : PromptMark::kAll;
    }
  }
  return end;
}

void ReadBreakpoints(const ordered_json& list, std::span<const size_t> places,
                     std::span<const ChatMessage> messages, seconds keep_for,
                     std::vector<PromptMark>* marks) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const size_t place = i < places.size() ? places[i] : i;
    if (place >= list.size()) return;
    for (const char* const name : {"content", "output"}) {
      const ordered_json& parts = ValueIn(list[place], name);
      if (!parts.is_array()) continue;
      const auto end = EndOfMarked(parts, TextOf(messages[i]));
      if (end) marks->push_back({.n_messages = i + 1, .n_bytes = *end, .keep_for = keep_for});
    }
  }
}

}  // namespace

StatusOr<seconds> ReadKeepFor(const ordered_json& ttl, std::string_view place, seconds otherwise) {
  if (ttl.is_null()) return otherwise;
  std::optional<seconds> time;
  if (ttl.is_string()) time = SecondsOf(ttl.get_ref<const std::string&>());
  if (!time) return Misshapen(place, "must be a time such as \"5m\" or \"1h\", up to a week");
  return *time;
}

StatusOr<PromptMark> ReadCacheControl(const ordered_json& control, std::string_view place) {
  PromptMark mark;
  WEFT_ASSIGN_OR_RETURN(
      mark.keep_for,
      ReadKeepFor(ValueIn(control, "ttl"),
                  StrCat(place, place.empty() ? "" : ".", "cache_control.ttl"), kAnthropicKeeps));
  return mark;
}

void ReadPromptCache(ApiFields* fields, const char* list, std::span<const size_t> places,
                     std::span<const ChatMessage> messages, std::vector<PromptMark>* marks) {
  // Prefixes are found without being named.
  fields->CannotMatter({"prompt_cache_key"});
  const auto retention = fields->String("prompt_cache_retention");
  if (retention && *retention != "in_memory" && *retention != "in-memory") {
    const auto time = SecondsOf(*retention);
    if (!time) {
      return fields->Fail("prompt_cache_retention",
                          "must be \"in_memory\" or a time such as \"24h\"");
    }
    marks->push_back({.keep_for = *time});
  }
  seconds keep_for = kOpenAiKeeps;
  if (const ordered_json* const options = fields->Value("prompt_cache_options")) {
    const auto time =
        ReadKeepFor(ValueIn(*options, "ttl"), "prompt_cache_options.ttl", kOpenAiKeeps);
    if (!time.ok()) return fields->Adopt(time.status());
    keep_for = *time;
    if (StringOr(*options, "mode") != "explicit") marks->push_back({.keep_for = keep_for});
  }
  const ordered_json* const entries = fields->Value(list);
  if (entries != nullptr && entries->is_array()) {
    ReadBreakpoints(*entries, places, messages, keep_for, marks);
  }
}

void PlaceMarks(Host& host, std::string_view domain, const ChatRequest& chat,
                std::span<const PromptMark> marks, TurnOptions* turn) {
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
    const int64_t n_tokens = TokensBefore(host, domain, chat, mark, turn->tokens);
    if (n_tokens > 0) turn->prefix_marks.push_back({n_tokens, mark.keep_for});
  }
  const int64_t n_prompt = turn->PromptSize(host.model().row_width());
  if (whole.count() > 0 && n_prompt > 0) turn->prefix_marks.push_back({n_prompt, whole});
}

}  // namespace weft::serve
