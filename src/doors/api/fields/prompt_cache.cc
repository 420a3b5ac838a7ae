#include "doors/api/fields/prompt_cache.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;
using std::chrono::seconds;

constexpr seconds kMaxKept = std::chrono::hours(7 * 24);
constexpr seconds kAnthropicKeeps = std::chrono::minutes(5);
constexpr seconds kOpenAiKeeps = std::chrono::minutes(30);

std::optional<seconds> SecondsOf(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  const int64_t each = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || each == 0 || count < 1) return std::nullopt;
  if (count > kMaxKept.count() / each) return std::nullopt;
  return seconds(count * each);
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

}  // namespace weft::serve
