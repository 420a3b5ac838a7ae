// Calls in Python syntax: f(a=1, b=['x', True]).
#include "answer/reply/call_syntax.h"
#include "base/unicode.h"

namespace weft {
namespace {

constexpr size_t kMaxKeyBytes = 256;

int HexValue(int c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// An escape's `n_digits` as UTF-8; invalid code points are replaced.
ReplyTask<bool> TakeCodePoint(ReplyIo& io, int n_digits, std::string* text) {
  char32_t code = 0;
  for (int i = 0; i < n_digits; ++i) {
    const int c = co_await io.Peek();
    const int digit = HexValue(c);
    if (digit < 0) co_return false;
    io.Take();
    code = code * 16 + static_cast<char32_t>(digit);
  }
  if (code > kMaxCodePoint || (code >= 0xD800 && code < 0xE000)) code = kReplacementChar;
  AppendUtf8(code, text);
  co_return true;
}

// Decodes what follows a backslash.
ReplyTask<bool> TakeEscape(ReplyIo& io, std::string* text) {
  const int c = co_await io.Peek();
  if (c < 0) co_return false;
  io.Take();
  constexpr std::string_view kEscapes = "ntrbf\\'\"", kMeanings = "\n\t\r\b\f\\'\"";
  const size_t known = kEscapes.find(static_cast<char>(c));
  if (known != std::string_view::npos) {
    *text = kMeanings[known];
  } else if (c == 'x' || c == 'u' || c == 'U') {
    const int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    const bool ok = co_await TakeCodePoint(io, n_digits, text);
    co_return ok;
  } else if (c != '\n') {  // an escaped line break produces nothing
    *text = {'\\', static_cast<char>(c)};
  }
  co_return true;
}

// Copies text up to and including `n_quotes` quotes to `call` or, if that is null, into `text`.
ReplyTask<bool> TakeUpToQuotes(ReplyIo& io, int quote, int n_quotes, CallWriter* call,
                               std::string* text) {
  while (true) {
    int c = co_await io.Peek();
    if (c < 0) co_return false;
    std::string piece;
    int n = 0;
    for (; n < n_quotes && c == quote; ++n) {
      io.Take();
      piece += static_cast<char>(c);
      if (n + 1 < n_quotes) c = co_await io.Peek();
    }
    if (n == n_quotes) co_return true;
    if (n == 0) {
      io.Take();
      piece = static_cast<char>(c);
    }
    if (n == 0 && c == '\\') {
      piece.clear();
      const bool ok = co_await TakeEscape(io, &piece);
      if (!ok) co_return false;
    }
    if (call != nullptr) {
      call->StringText(piece);
    } else {
      *text += piece;
    }
  }
}

// Copies a quoted string to `call` or, if that is null, into `text`.
ReplyTask<bool> TakePythonString(ReplyIo& io, CallWriter* call, std::string* text) {
  const int quote = co_await io.Peek();
  if (quote != '"' && quote != '\'') co_return false;
  io.Take();
  if (call != nullptr) call->StartString();
  int n_quotes = 1;
  int c = co_await io.Peek();
  bool ended = false;
  if (c == quote) {
    io.Take();
    c = co_await io.Peek();
    ended = c != quote;
    if (!ended) {
      io.Take();
      n_quotes = 3;
    }
  }
  if (!ended) ended = co_await TakeUpToQuotes(io, quote, n_quotes, call, text);
  if (ended && call != nullptr) call->EndString();
  co_return ended;
}

ReplyTask<bool> CopyPythonScalar(ReplyIo& io, CallWriter& call) {
  constexpr size_t kMaxWordBytes = 64;
  const int c = co_await io.Peek();
  if (c == 'T' || c == 'F' || c == 'N') {
    std::string word;
    const bool ended = co_await TakeBefore(io, ",)]}: \n\t\r", kMaxWordBytes, &word);
    if (!ended || (word != "True" && word != "False" && word != "None")) co_return false;
    call.Scalar(word == "True" ? "true" : word == "False" ? "false" : "null");
    co_return true;
  }
  std::string json;
  const bool ok = co_await TakeJsonScalar(io, &json);
  if (ok) call.Scalar(json);
  co_return ok;
}

ReplyTask<bool> TakeKey(ReplyIo& io, CallWriter& call) {
  std::string key;
  const bool ok = co_await TakePythonString(io, nullptr, &key);
  if (!ok) co_return false;
  co_await TakeSpace(io);
  const bool colon = co_await TakeText(io, ":");
  if (!colon) co_return false;
  call.Key(key);
  co_await TakeSpace(io);
  co_return true;
}

// The rest of a list, tuple or dictionary, after its opening bracket.
ReplyTask<bool> CopyBracketRest(ReplyIo& io, CallWriter& call, char closer) {
  for (bool first = true;; first = false) {
    bool more = false;
    const bool fits = co_await TakeToElement(io, closer, first, /*may_trail=*/true, &more);
    if (!fits) co_return false;
    if (!more) break;
    if (closer == '}') {
      const bool has_key = co_await TakeKey(io, call);
      if (!has_key) co_return false;
    } else {
      call.Element();
    }
    const bool ok = co_await CopyPythonValue(io, call);
    if (!ok) co_return false;
  }
  call.Close();
  co_return true;
}

ReplyTask<bool> ReadNamedArguments(ReplyIo& io, CallWriter& call) {
  std::string name;
  const bool named = co_await TakeBefore(io, "( \n\t'\"[]{})", CallWriter::kMaxNameBytes, &name);
  if (!named || !call.SetName(name)) co_return false;
  const bool open = co_await TakeText(io, "(");
  if (!open) co_return false;
  call.Open('{');
  for (bool first = true;; first = false) {
    bool more = false;
    const bool fits = co_await TakeToElement(io, ')', first, /*may_trail=*/true, &more);
    if (!fits) co_return false;
    if (!more) break;
    std::string key;
    const bool has_key = co_await TakeBefore(io, "=,()[]{}'\" \n\t", kMaxKeyBytes, &key);
    if (!has_key || key.empty()) co_return false;
    co_await TakeSpace(io);
    const bool equals = co_await TakeText(io, "=");
    if (!equals) co_return false;
    co_await TakeSpace(io);
    call.Key(key);
    const bool ok = co_await CopyPythonValue(io, call);
    if (!ok) co_return false;
  }
  call.Close();
  co_return true;
}

}  // namespace

ReplyTask<bool> CopyTextUpTo(ReplyIo& io, CallWriter& call, int quote, int n_quotes) {
  const bool ok = co_await TakeUpToQuotes(io, quote, n_quotes, &call, nullptr);
  if (ok) call.EndString();
  co_return ok;
}

ReplyTask<bool> CopyPythonValue(ReplyIo& io, CallWriter& call) {
  const int c = co_await io.Peek();
  if (c == '"' || c == '\'') {
    const bool ok = co_await TakePythonString(io, &call, nullptr);
    co_return ok;
  }
  if (c == '[' || c == '(' || c == '{') {
    io.Take();
    if (!call.Open(c == '{' ? '{' : '[')) co_return false;
    const bool ok = co_await CopyBracketRest(io, call, c == '{' ? '}' : c == '[' ? ']' : ')');
    co_return ok;
  }
  const bool ok = co_await CopyPythonScalar(io, call);
  co_return ok;
}

ReplyTask<bool> ReadPythonCall(ReplyIo& io) {
  CallWriter call(&io);
  const bool ok = co_await ReadNamedArguments(io, call);
  if (!ok) call.Complete();
  co_return ok;
}

}  // namespace weft
