// Calls and values in JSON.
#include <utility>

#include "answer/reply/call_syntax.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

bool IsSpace(int c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool IsDigit(int c) { return c >= '0' && c <= '9'; }

bool IsWordByte(int c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' ||
         c == '.' || c == '_';
}

int HexValue(int c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

size_t CountDigits(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && IsDigit(text[n])) ++n;
  return n;
}

bool IsJsonNumber(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t whole = CountDigits(text);
  if (whole == 0 || (whole > 1 && text[0] == '0')) return false;
  text.remove_prefix(whole);
  if (text.starts_with('.')) {
    const size_t digits = CountDigits(text.substr(1));
    if (digits == 0) return false;
    text.remove_prefix(digits + 1);
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    const size_t digits = CountDigits(text);
    if (digits == 0) return false;
    text.remove_prefix(digits);
  }
  return text.empty();
}

// Receives the characters of a string, as JSON text.
class StringSink {
 public:
  // If `call` is null, they are collected.
  explicit StringSink(CallWriter* call) : call_(call) {}
  void Text(char c) {
    if (call_ != nullptr) {
      call_->StringText({&c, 1});
    } else {
      json_ += JsonEscaped({&c, 1});
    }
  }
  void Escape(std::string_view escape) {
    if (call_ != nullptr) {
      call_->StringEscape(escape);
    } else {
      json_ += escape;
    }
  }
  const std::string& json() const { return json_; }

 private:
  CallWriter* const call_;
  std::string json_;
};

constexpr std::string_view kReplacement = "\\ufffd";

// Four hexadecimal digits; -1 if they are not.
ReplyTask<int> TakeHex4(ReplyIo& io) {
  int value = 0;
  for (int i = 0; i < 4; ++i) {
    const int c = co_await io.Peek();
    const int digit = HexValue(c);
    if (digit < 0) co_return -1;
    io.Take();
    value = value * 16 + digit;
  }
  co_return value;
}

std::string UnicodeEscape(int unit) {
  constexpr char kHex[] = "0123456789abcdef";
  return {'\\',           'u', kHex[unit >> 12], kHex[(unit >> 8) & 15], kHex[(unit >> 4) & 15],
          kHex[unit & 15]};
}

// After "\u". Replaces unpaired surrogates.
ReplyTask<bool> CopyUnicodeEscape(ReplyIo& io, StringSink& sink) {
  int unit = co_await TakeHex4(io);
  while (unit >= 0xD800 && unit < 0xDC00) {
    int next = co_await io.Peek();
    if (next != '\\') {
      sink.Escape(kReplacement);
      co_return next >= 0;
    }
    io.Take();
    next = co_await io.Peek();
    if (next != 'u') {
      // The backslash begins another escape, which is read here.
      if (next < 0) co_return false;
      io.Take();
      sink.Escape(kReplacement);
      if (std::string_view("\"\\/bfnrt").find(static_cast<char>(next)) == std::string_view::npos) {
        sink.Text('\\');
        sink.Text(static_cast<char>(next));
      } else {
        const char escape[] = {'\\', static_cast<char>(next)};
        sink.Escape({escape, 2});
      }
      co_return true;
    }
    io.Take();
    const int low = co_await TakeHex4(io);
    if (low >= 0xDC00 && low < 0xE000) {
      sink.Escape(UnicodeEscape(unit) + UnicodeEscape(low));
      co_return true;
    }
    if (low < 0) co_return false;
    sink.Escape(kReplacement);
    unit = low;
  }
  if (unit < 0) co_return false;
  sink.Escape(unit >= 0xDC00 && unit < 0xE000 ? std::string(kReplacement) : UnicodeEscape(unit));
  co_return true;
}

// The rest of a string and its closing quote; the opening one was taken.
ReplyTask<bool> CopyStringRest(ReplyIo& io, StringSink& sink) {
  while (true) {
    const int c = co_await io.Peek();
    if (c < 0) co_return false;
    io.Take();
    if (c == '"') co_return true;
    if (c != '\\') {
      sink.Text(static_cast<char>(c));
      continue;
    }
    const int escaped = co_await io.Peek();
    if (escaped < 0) co_return false;
    io.Take();
    if (escaped == 'u') {
      const bool ok = co_await CopyUnicodeEscape(io, sink);
      if (!ok) co_return false;
    } else if (escaped == '\'') {
      sink.Text('\'');
    } else if (std::string_view("\"\\/bfnrt").find(static_cast<char>(escaped)) !=
               std::string_view::npos) {
      const char escape[] = {'\\', static_cast<char>(escaped)};
      sink.Escape({escape, 2});
    } else {
      sink.Text('\\');
      sink.Text(static_cast<char>(escaped));
    }
  }
}

// A string's JSON text without its quotes.
ReplyTask<bool> TakeRawString(ReplyIo& io, std::string* json) {
  const bool quoted = co_await TakeText(io, "\"");
  if (!quoted) co_return false;
  StringSink sink(nullptr);
  const bool ok = co_await CopyStringRest(io, sink);
  *json = sink.json();
  co_return ok;
}

ReplyTask<bool> TakeSpaceInto(ReplyIo& io, std::string* space) {
  while (true) {
    const int c = co_await io.Peek();
    if (!IsSpace(c)) co_return true;
    io.Take();
    *space += static_cast<char>(c);
  }
}

ReplyTask<bool> CopySpace(ReplyIo& io, CallWriter& call) {
  std::string space;
  co_await TakeSpaceInto(io, &space);
  call.Between(space);
  co_return true;
}

// The members of an object or the elements of an array, and the closing bracket. Drops a trailing
// comma.
ReplyTask<bool> CopyBracketRest(ReplyIo& io, CallWriter& call, char closer) {
  for (bool first = true;; first = false) {
    co_await CopySpace(io, call);
    int c = co_await io.Peek();
    if (c == ',' && !first) {
      io.Take();
      std::string space;
      co_await TakeSpaceInto(io, &space);
      c = co_await io.Peek();
      if (c != closer) call.Between(",");
      call.Between(space);
    } else if (c != closer && !first) {
      co_return false;
    }
    if (c == closer) {
      io.Take();
      break;
    }
    if (closer == '}') {
      std::string key;
      const bool has_key = co_await TakeRawString(io, &key);
      if (!has_key) co_return false;
      call.Between('"' + key + '"');
      co_await CopySpace(io, call);
      const bool colon = co_await TakeText(io, ":");
      if (!colon) co_return false;
      call.Between(":");
      co_await CopySpace(io, call);
    }
    const bool ok = co_await CopyJsonValue(io, call);
    if (!ok) co_return false;
  }
  call.Close();
  co_return true;
}

// A string between any of the quotes that models use.
ReplyTask<bool> CopyString(ReplyIo& io, CallWriter& call) {
  const int quote = co_await io.Peek();
  io.Take();
  call.StartString();
  bool ok = false;
  if (quote != '"') {
    ok = co_await CopyTextUpTo(io, call, quote, 1);
    co_return ok;
  }
  int c = co_await io.Peek();
  if (c == '"') {
    io.Take();
    c = co_await io.Peek();
    if (c == '"') {
      io.Take();
      ok = co_await CopyTextUpTo(io, call, quote, 3);
      co_return ok;
    }
    call.EndString();
    co_return true;
  }
  StringSink sink(&call);
  ok = co_await CopyStringRest(io, sink);
  if (ok) call.EndString();
  co_return ok;
}

enum class Member { kOther, kName, kId, kArguments };

Member MemberNamed(std::string_view key) {
  if (key == "name" || key == "tool_name") return Member::kName;
  if (key == "id") return Member::kId;
  if (key == "arguments" || key == "parameters") return Member::kArguments;
  return Member::kOther;
}

// Some models put their arguments in quotes: "{\"a\": 1}".
bool WriteQuotedArguments(const std::string& text, CallWriter& call) {
  const std::string json = ParameterTypes::ToJson(text, ParameterTypes::kObject);
  if (!json.starts_with('{')) return false;
  call.Whole(json);
  return true;
}

ReplyTask<bool> ReadArguments(ReplyIo& io, CallWriter& call) {
  const int c = co_await io.Peek();
  if (c == '{') {
    const bool ok = co_await CopyJsonObject(io, call);
    co_return ok;
  }
  if (c == '"') {
    std::string text;
    const bool ok = co_await TakeJsonString(io, &text);
    co_return ok&& WriteQuotedArguments(text, call);
  }
  const bool is_null = co_await TakeText(io, "null");
  if (is_null) call.Whole("{}");
  co_return is_null;
}

ReplyTask<bool> ReadMember(ReplyIo& io, CallWriter& call, bool* has_arguments) {
  std::string key;
  const bool has_key = co_await TakeJsonString(io, &key);
  if (!has_key) co_return false;
  co_await TakeSpace(io);
  const bool colon = co_await TakeText(io, ":");
  if (!colon) co_return false;
  co_await TakeSpace(io);
  const Member member = MemberNamed(key);
  const int c = co_await io.Peek();
  if (member == Member::kName || (member == Member::kId && c == '"')) {
    std::string text;
    const bool ok = co_await TakeJsonString(io, &text);
    if (!ok) co_return false;
    if (member == Member::kName) co_return call.SetName(text);
    call.SetId(text);
    co_return true;
  }
  if (member == Member::kArguments && !*has_arguments) {
    *has_arguments = true;
    const bool ok = co_await ReadArguments(io, call);
    co_return ok;
  }
  CallWriter ignored(&io);  // without a name it emits nothing
  const bool ok = co_await CopyJsonValue(io, ignored);
  co_return ok;
}

ReplyTask<bool> ReadMembers(ReplyIo& io, CallWriter& call, bool* has_arguments) {
  const bool open = co_await TakeText(io, "{");
  if (!open) co_return false;
  for (bool first = true;; first = false) {
    co_await TakeSpace(io);
    const int c = co_await io.Peek();
    if (c == '}') {
      io.Take();
      co_return true;
    }
    if (!first) {
      const bool comma = co_await TakeText(io, ",");
      if (!comma) co_return false;
      co_await TakeSpace(io);
      const int next = co_await io.Peek();
      if (next == '}') continue;
    }
    const bool ok = co_await ReadMember(io, call, has_arguments);
    if (!ok) co_return false;
  }
}

}  // namespace

ReplyTask<bool> TakeSpace(ReplyIo& io) {
  while (true) {
    const int c = co_await io.Peek();
    if (!IsSpace(c)) co_return true;
    io.Take();
  }
}

ReplyTask<bool> TakeText(ReplyIo& io, std::string_view text) {
  for (const char expected : text) {
    const int c = co_await io.Peek();
    if (c != static_cast<unsigned char>(expected)) co_return false;
    io.Take();
  }
  co_return true;
}

ReplyTask<bool> TakeToElement(ReplyIo& io, char closer, bool first, bool may_trail, bool* more) {
  *more = false;
  co_await TakeSpace(io);
  int c = co_await io.Peek();
  bool may_close = true;
  if (!first && c != closer) {
    const bool comma = co_await TakeText(io, ",");
    if (!comma) co_return false;
    co_await TakeSpace(io);
    c = co_await io.Peek();
    may_close = may_trail;
  }
  *more = c != closer || !may_close;
  if (!*more) io.Take();
  co_return true;
}

ReplyTask<bool> TakeBefore(ReplyIo& io, std::string_view ends, size_t max_bytes,
                           std::string* text) {
  while (true) {
    const int c = co_await io.Peek();
    if (c < 0) co_return false;
    if (ends.find(static_cast<char>(c)) != std::string_view::npos) co_return true;
    if (text->size() >= max_bytes) co_return false;
    io.Take();
    *text += static_cast<char>(c);
  }
}

ReplyTask<bool> TakeJsonScalar(ReplyIo& io, std::string* json) {
  constexpr size_t kMaxScalarBytes = 64;
  constexpr std::pair<std::string_view, std::string_view> kPythonWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  while (true) {
    const int c = co_await io.Peek();
    if (!IsWordByte(c)) {
      for (const auto& [python, known_as] : kPythonWords) {
        if (*json == python) *json = known_as;
      }
      const bool known = *json == "true" || *json == "false" || *json == "null";
      // At the end of the text a number may be missing digits.
      co_return c != ReplyIo::kEnd && (known || IsJsonNumber(*json));
    }
    if (json->size() >= kMaxScalarBytes) co_return false;
    io.Take();
    *json += static_cast<char>(c);
  }
}

ReplyTask<bool> TakeJsonString(ReplyIo& io, std::string* text) {
  std::string json;
  const bool ok = co_await TakeRawString(io, &json);
  if (!ok) co_return false;
  const auto value = nlohmann::json::parse('"' + json + '"', nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) co_return false;
  *text = value.get<std::string>();
  co_return true;
}

ReplyTask<bool> CopyJsonValue(ReplyIo& io, CallWriter& call) {
  const int c = co_await io.Peek();
  if (c == '"' || c == '\'' || c == '`') {
    const bool ok = co_await CopyString(io, call);
    co_return ok;
  }
  if (c == '{' || c == '[') {
    io.Take();
    if (!call.Open(static_cast<char>(c))) co_return false;
    const int next = co_await io.Peek();
    const bool doubled = c == '{' && next == '{';
    if (doubled) io.Take();
    const bool ok = co_await CopyBracketRest(io, call, c == '{' ? '}' : ']');
    if (ok && doubled) co_await TakeText(io, "}");
    co_return ok;
  }
  std::string json;
  const bool ok = co_await TakeJsonScalar(io, &json);
  if (ok) call.Scalar(json);
  co_return ok;
}

ReplyTask<bool> CopyJsonObject(ReplyIo& io, CallWriter& call) {
  const int c = co_await io.Peek();
  if (c != '{') co_return false;
  const bool ok = co_await CopyJsonValue(io, call);
  co_return ok;
}

ReplyTask<bool> ReadJsonCall(ReplyIo& io, bool needs_arguments) {
  CallWriter call(&io);
  bool has_arguments = false;
  const bool ok = co_await ReadMembers(io, call, &has_arguments);
  if (!ok || !call.has_name() || (needs_arguments && !has_arguments)) {
    call.Complete();
    co_return false;
  }
  if (!has_arguments) call.Whole("{}");
  io.Forget();
  co_return true;
}

}  // namespace weft
