#include "chat/call_markup.h"

#include <algorithm>
#include <utility>

#include "chat/text_place.h"

namespace weft {
namespace {

using Kind = CallMarkup::Kind;

constexpr size_t kMaxWordBytes = 32;

// Tags that stand around calls, beside the names of tools.
constexpr std::string_view kTags[] = {
    "tool_call",    "tool_calls", "toolcall",  "tool",          "tools",          "tool_use",
    "tool_code",    "function",   "functions", "function_call", "function_calls", "call",
    "functioncall", "invoke",     "action",    "xml",           "json",           "response",
    "answer",       "output",     "request",   "assistant"};
// Those that may name the function within.
constexpr std::string_view kNamingTags[] = {"function", "tool", "tool_call",
                                            "invoke",   "call", "function_call"};

bool IsWordByte(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool IsTag(std::string_view word) {
  return std::find(std::begin(kTags), std::end(kTags), Lower(word)) != std::end(kTags);
}

bool MayBecomeTag(std::string_view prefix) {
  const std::string lower = Lower(prefix);
  return std::any_of(std::begin(kTags), std::end(kTags),
                     [&](std::string_view tag) { return tag.starts_with(lower); });
}

bool IsNamingTag(std::string_view word) {
  return std::find(std::begin(kNamingTags), std::end(kNamingTags), Lower(word)) !=
         std::end(kNamingTags);
}

// The bytes of a word as long as `may_be` accepts it.
template <typename MayBe>
ReplyTask<bool> TakeWordWhile(ReplyIo& io, MayBe may_be, std::string* word) {
  while (true) {
    const int c = co_await io.Peek();
    if (!IsWordByte(c)) co_return true;
    word->push_back(static_cast<char>(c));
    if (word->size() > CallWriter::kMaxNameBytes || !may_be(*word)) co_return false;
    io.Take();
  }
}

CallMarkup Ended(int c, Kind otherwise) {
  return {.kind = c == ReplyIo::kEnd ? Kind::kCut : otherwise};
}

// The backticks and the language; what it stands before is not looked at.
ReplyTask<CallMarkup> TakeFence(ReplyIo& io) {
  size_t n = 0;
  int c = co_await io.Peek();
  for (; c == '`'; ++n) {
    io.Take();
    c = co_await io.Peek();
  }
  if (n < 3) co_return Ended(c, Kind::kNone);
  std::string language;
  const bool ok = co_await TakeWordWhile(io, TextPlace::MayBecomeCallLanguage, &language);
  if (!ok || !TextPlace::IsCallLanguage(language)) {
    c = co_await io.Peek();
    co_return Ended(c, Kind::kNone);
  }
  c = co_await io.Peek();
  if (c == ReplyIo::kEnd) co_return CallMarkup{.kind = Kind::kFence, .name = language};
  const bool fits =
      std::string_view(" \t\r\n{[<").find(static_cast<char>(c)) != std::string_view::npos;
  if (c < 0 || !fits) co_return CallMarkup();
  co_return CallMarkup{.kind = Kind::kFence, .name = language};
}

// <|word|>, whose first two bytes were taken.
ReplyTask<CallMarkup> TakeBarTag(ReplyIo& io) {
  std::string word;
  const auto is_short = [](std::string_view prefix) { return prefix.size() <= kMaxWordBytes; };
  bool ok = co_await TakeWordWhile(io, is_short, &word);
  if (ok && !word.empty()) {
    ok = co_await TakeText(io, "|>");
    if (ok) co_return CallMarkup{.kind = Kind::kOpen};
  }
  const int c = co_await io.Peek();
  co_return Ended(c, Kind::kNone);
}

ReplyTask<CallMarkup> TakeCloseTag(ReplyIo& io, const ParameterTypes& tools, bool any_close) {
  std::string word;
  const auto may_be = [&](std::string_view prefix) {
    return any_close || MayBecomeTag(prefix) || tools.OffersLike(prefix);
  };
  bool ok = co_await TakeWordWhile(io, may_be, &word);
  if (ok && (any_close || IsTag(word) || tools.Offers(word))) {
    ok = co_await TakeText(io, ">");
    if (ok) co_return CallMarkup{.kind = Kind::kClose};
  }
  const int c = co_await io.Peek();
  co_return Ended(c, Kind::kNone);
}

// The name in =NAME> or name="NAME">, quoted or not.
ReplyTask<CallMarkup> TakeNaming(ReplyIo& io, const ParameterTypes& tools, const TagSyntax* tags) {
  CallMarkup markup{.kind = Kind::kNamed, .tags = tags};
  int c = co_await io.Peek();
  const int quote = c;
  const bool quoted = c == '"' || c == '\'';
  if (quoted) io.Take();
  const auto may_be = [&](std::string_view prefix) { return tools.OffersLike(prefix); };
  bool ok = co_await TakeWordWhile(io, may_be, &markup.name);
  ok = ok && tools.Offers(markup.name);
  if (ok && quoted) {
    c = co_await io.Peek();
    ok = c == quote;
    if (ok) io.Take();
  }
  if (ok) ok = co_await TakeText(io, ">");
  if (ok) co_return markup;
  c = co_await io.Peek();
  co_return Ended(c, Kind::kNone);
}

ReplyTask<CallMarkup> TakeTag(ReplyIo& io, const ParameterTypes& tools, bool any_close) {
  io.Take();
  int c = co_await io.Peek();
  CallMarkup markup;
  if (c == '|' || c == '/') {
    io.Take();
    if (c == '|') {
      markup = co_await TakeBarTag(io);
    } else {
      markup = co_await TakeCloseTag(io, tools, any_close);
    }
    co_return markup;
  }
  std::string word;
  const auto may_be = [&](std::string_view prefix) {
    return MayBecomeTag(prefix) || tools.OffersLike(prefix);
  };
  bool ok = co_await TakeWordWhile(io, may_be, &word);
  c = co_await io.Peek();
  if (!ok) co_return Ended(c, Kind::kNone);
  if (c == '>' && (IsTag(word) || tools.Offers(word))) {
    io.Take();
    const bool is_tool = !IsTag(word);
    co_return CallMarkup{.kind = is_tool ? Kind::kNamed : Kind::kOpen,
                         .name = is_tool ? word : "",
                         .tags = &kFunctionTags};
  }
  if (IsNamingTag(word) && c == '=') {
    io.Take();
    markup = co_await TakeNaming(io, tools, &kFunctionTags);
    co_return markup;
  }
  if (IsNamingTag(word) && c == ' ') {
    ok = co_await TakeText(io, " name=");
    if (ok) {
      markup = co_await TakeNaming(io, tools, &kInvokeTags);
      co_return markup;
    }
    c = co_await io.Peek();
  }
  co_return Ended(c, Kind::kNone);
}

}  // namespace

ReplyTask<CallMarkup> TakeCallMarkup(ReplyIo& io, const ParameterTypes& tools, bool any_close) {
  const int c = co_await io.Peek();
  CallMarkup markup;
  if (c == '`') {
    markup = co_await TakeFence(io);
  } else {
    markup = co_await TakeTag(io, tools, any_close);
  }
  co_return markup;
}

}  // namespace weft
