#include "answer/reply/call_markup.h"

#include <algorithm>
#include <utility>

#include "answer/reply/text_place.h"
#include "base/strings.h"

namespace weft {
namespace {

using Kind = CallMarkup::Kind;

constexpr size_t kMaxWordBytes = 32;

// Tags around calls, besides the names of tools.
constexpr std::string_view kTags[] = {
    "tool_call",    "tool_calls", "toolcall",  "tool",          "tools",          "tool_use",
    "tool_code",    "function",   "functions", "function_call", "function_calls", "call",
    "functioncall", "invoke",     "action",    "xml",           "json",           "response",
    "answer",       "output",     "request",   "assistant"};
// Tags that may name the function inside.
constexpr std::string_view kNamingTags[] = {"function", "tool", "tool_call",
                                            "invoke",   "call", "function_call"};

bool IsWordByte(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

bool IsTag(std::string_view word) {
  return std::find(std::begin(kTags), std::end(kTags), AsciiLower(word)) != std::end(kTags);
}

bool MayBecomeTag(std::string_view prefix) {
  const std::string lower = AsciiLower(prefix);
  return std::any_of(std::begin(kTags), std::end(kTags),
                     [&](std::string_view tag) { return tag.starts_with(lower); });
}

bool IsNamingTag(std::string_view word) {
  return std::find(std::begin(kNamingTags), std::end(kNamingTags), AsciiLower(word)) !=
         std::end(kNamingTags);
}

// Takes bytes of a word while `may_be` accepts it.
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

// The backticks and the language; only peeks at what follows.
ReplyTask<bool> TakeFence(ReplyIo& io, CallMarkup* markup) {
  size_t n = 0;
  int c = co_await io.Peek();
  for (; c == '`'; ++n) {
    io.Take();
    c = co_await io.Peek();
  }
  if (n < 3) co_return false;
  const bool ok = co_await TakeWordWhile(io, TextPlace::MayBecomeCallLanguage, &markup->name);
  if (!ok || !TextPlace::IsCallLanguage(markup->name)) co_return false;
  c = co_await io.Peek();
  constexpr std::string_view kEnds = " \t\r\n{[<";
  if (c != ReplyIo::kEnd && (c < 0 || kEnds.find(static_cast<char>(c)) == kEnds.npos)) {
    co_return false;
  }
  markup->kind = Kind::kFence;
  co_return true;
}

// <|word|>, after its first two bytes.
ReplyTask<bool> TakeBarTag(ReplyIo& io, CallMarkup* markup) {
  std::string word;
  const auto is_short = [](std::string_view prefix) { return prefix.size() <= kMaxWordBytes; };
  bool ok = co_await TakeWordWhile(io, is_short, &word);
  if (!ok || word.empty()) co_return false;
  ok = co_await TakeText(io, "|>");
  if (ok) markup->kind = Kind::kOpen;
  co_return ok;
}

// </word>, after its first two bytes.
ReplyTask<bool> TakeCloseTag(ReplyIo& io, const ParameterTypes& tools, bool any_close,
                             CallMarkup* markup) {
  std::string word;
  const auto may_be = [&](std::string_view prefix) {
    return any_close || MayBecomeTag(prefix) || tools.OffersLike(prefix);
  };
  bool ok = co_await TakeWordWhile(io, may_be, &word);
  if (!ok || !(any_close || IsTag(word) || tools.Offers(word))) co_return false;
  ok = co_await TakeText(io, ">");
  if (ok) markup->kind = Kind::kClose;
  co_return ok;
}

// The name in =NAME> or name="NAME">, with or without quotes.
ReplyTask<bool> TakeNaming(ReplyIo& io, const ParameterTypes& tools, CallMarkup* markup) {
  const int quote = co_await io.Peek();
  const bool quoted = quote == '"' || quote == '\'';
  if (quoted) io.Take();
  const auto may_be = [&](std::string_view prefix) { return tools.OffersLike(prefix); };
  bool ok = co_await TakeWordWhile(io, may_be, &markup->name);
  if (!ok || !tools.Offers(markup->name)) co_return false;
  if (quoted) {
    const int c = co_await io.Peek();
    if (c != quote) co_return false;
    io.Take();
  }
  ok = co_await TakeText(io, ">");
  if (ok) markup->kind = Kind::kNamed;
  co_return ok;
}

// <word>, <word=NAME>, <word name="NAME">, <NAME>, after the first byte.
ReplyTask<bool> TakeOpenTag(ReplyIo& io, const ParameterTypes& tools, CallMarkup* markup) {
  std::string word;
  const auto may_be = [&](std::string_view prefix) {
    return MayBecomeTag(prefix) || tools.OffersLike(prefix);
  };
  bool ok = co_await TakeWordWhile(io, may_be, &word);
  if (!ok) co_return false;
  const int c = co_await io.Peek();
  markup->tags = &kFunctionTags;
  if (c == '>' && (IsTag(word) || tools.Offers(word))) {
    io.Take();
    markup->kind = IsTag(word) ? Kind::kOpen : Kind::kNamed;
    if (markup->kind == Kind::kNamed) markup->name = word;
    co_return true;
  }
  if (!IsNamingTag(word) || (c != '=' && c != ' ')) co_return false;
  ok = co_await TakeText(io, c == '=' ? "=" : " name=");
  if (c == ' ') markup->tags = &kInvokeTags;
  if (ok) ok = co_await TakeNaming(io, tools, markup);
  co_return ok;
}

}  // namespace

ReplyTask<bool> TakeCallMarkup(ReplyIo& io, const ParameterTypes& tools, bool any_close,
                               CallMarkup* markup) {
  int c = co_await io.Peek();
  bool ok = false;
  if (c == '`') {
    ok = co_await TakeFence(io, markup);
  } else {
    io.Take();
    c = co_await io.Peek();
    if (c == '|' || c == '/') io.Take();
    if (c == '|') {
      ok = co_await TakeBarTag(io, markup);
    } else if (c == '/') {
      ok = co_await TakeCloseTag(io, tools, any_close, markup);
    } else {
      ok = co_await TakeOpenTag(io, tools, markup);
    }
  }
  if (ok) co_return true;
  c = co_await io.Peek();
  markup->kind = c == ReplyIo::kEnd ? Kind::kCut : Kind::kNone;
  co_return false;
}

}  // namespace weft
