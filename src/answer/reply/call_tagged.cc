// Calls with parameters between tags:
//   <function=f>\n<parameter=a>\n1\n</parameter>\n</function>
#include "answer/reply/call_syntax.h"

namespace weft {
namespace {

constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxIndexBytes = 16;

// A parameter's value that is certainly a string; emitted as it arrives.
ReplyTask<bool> CopyText(ReplyIo& io, CallWriter& call, const TagSyntax& syntax) {
  std::string close(syntax.parameter_close);
  std::string with_break = (syntax.exact_values ? "" : "\n") + close;
  const auto may_end = [&](std::string_view text) {
    return with_break.starts_with(text) || close.starts_with(text);
  };
  call.StartString();
  int c = co_await io.Peek();
  if (c == '\n' && !syntax.exact_values) io.Take();
  std::string open;  // a partial closing tag, at first a partial opening quote
  bool may_be_quoted = !syntax.quote_open.empty();
  while (true) {
    c = co_await io.Peek();
    if (c < 0) co_return false;
    io.Take();
    open += static_cast<char>(c);
    if (may_be_quoted && open == syntax.quote_open) {
      close = with_break = std::string(syntax.quote_close) + close;
      open.clear();
    }
    may_be_quoted = may_be_quoted && !open.empty() && syntax.quote_open.starts_with(open);
    if (may_be_quoted) continue;
    if (open == with_break || open == close) break;
    size_t released = 0;
    while (!may_end(std::string_view(open).substr(released))) ++released;
    if (released == 0) continue;
    call.StringText(std::string_view(open).substr(0, released));
    open.erase(0, released);
    if (call.begun()) io.HoldAgain(open);
  }
  call.EndString();
  co_return true;
}

// A value that may not be a string: its type is known at its end.
ReplyTask<bool> CopyTyped(ReplyIo& io, CallWriter& call, const TagSyntax& syntax, unsigned types) {
  const std::string_view close = syntax.parameter_close;
  std::string value;
  while (!value.ends_with(close)) {
    const int c = co_await io.Peek();
    if (c < 0) co_return false;
    io.Take();
    value += static_cast<char>(c);
  }
  value.erase(value.size() - close.size());
  if (!syntax.exact_values && value.ends_with('\n')) value.pop_back();
  if (!syntax.exact_values && value.starts_with('\n')) value.erase(0, 1);
  call.Scalar(ParameterTypes::ToJson(value, types));
  co_return true;
}

// Reads what is between a parameter's name and its value. If that says whether the value is a
// string, sets `types` accordingly.
ReplyTask<bool> ReadValueStart(ReplyIo& io, const TagSyntax& syntax, unsigned* types) {
  const bool key_ended = co_await TakeText(io, syntax.key_end);
  if (!key_ended || syntax.value_open.empty()) co_return key_ended;
  co_await TakeSpace(io);
  const int c = co_await io.Peek();
  if (!syntax.string_mark.empty() && c == static_cast<unsigned char>(syntax.string_mark[0])) {
    constexpr size_t kMaxWordBytes = 16;
    std::string word;
    bool ok = co_await TakeText(io, syntax.string_mark);
    if (ok) ok = co_await TakeBefore(io, "\"", kMaxWordBytes, &word);
    if (ok) ok = co_await TakeText(io, "\"");
    if (!ok) co_return false;
    *types = word == syntax.string_word ? ParameterTypes::kString
                                        : ParameterTypes::kAny & ~unsigned{ParameterTypes::kString};
  }
  const bool opened = co_await TakeText(io, syntax.value_open);
  co_return opened;
}

ReplyTask<bool> ReadParameter(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                              const ParameterTypes& types, std::string_view function) {
  std::string key;
  const bool keyed = co_await TakeBefore(io, syntax.key_end.substr(0, 1), kMaxKeyBytes, &key);
  if (!keyed || key.empty()) co_return false;
  unsigned type = types.Of(function, key);
  bool ok = co_await ReadValueStart(io, syntax, &type);
  if (!ok) co_return false;
  call.Key(key);
  if (type == ParameterTypes::kString) {
    ok = co_await CopyText(io, call, syntax);
  } else {
    ok = co_await CopyTyped(io, call, syntax, type);
  }
  co_return ok;
}

ReplyTask<bool> ReadNamedCall(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                              const ParameterTypes& types) {
  std::string name;
  const std::string_view ends =
      syntax.name_end.empty() ? std::string_view(" \n\t\r<") : syntax.name_end.substr(0, 1);
  bool ok = co_await TakeBefore(io, ends, CallWriter::kMaxNameBytes, &name);
  if (!ok || !call.SetName(name)) co_return false;
  ok = co_await TakeText(io, syntax.name_end);
  if (ok && !syntax.index_open.empty()) {
    std::string index;
    ok = co_await TakeText(io, syntax.index_open);
    if (ok) ok = co_await TakeBefore(io, syntax.index_close.substr(0, 1), kMaxIndexBytes, &index);
    if (ok) ok = co_await TakeText(io, syntax.index_close);
  }
  if (ok) ok = co_await ReadTaggedParameters(io, call, syntax, types, name);
  co_return ok;
}

}  // namespace

ReplyTask<bool> ReadTaggedParameters(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                                     const ParameterTypes& types, std::string_view function) {
  if (syntax.nested) {
    const bool read = co_await ReadNestedParameters(io, call, syntax, types, function);
    co_return read;
  }
  call.Open('{');
  // Both possible tags begin alike up to here.
  size_t alike = 0;
  while (syntax.parameter_open[alike] == syntax.function_close[alike]) ++alike;
  while (true) {
    co_await TakeSpace(io);
    const bool tag = co_await TakeText(io, syntax.function_close.substr(0, alike));
    if (!tag) co_return false;
    const int c = co_await io.Peek();
    if (c == static_cast<unsigned char>(syntax.function_close[alike])) {
      const bool closed = co_await TakeText(io, syntax.function_close.substr(alike));
      if (!closed) co_return false;
      call.Close();
      co_return true;
    }
    const bool opened = co_await TakeText(io, syntax.parameter_open.substr(alike));
    if (!opened) co_return false;
    const bool read = co_await ReadParameter(io, call, syntax, types, function);
    if (!read) co_return false;
  }
}

ReplyTask<bool> ReadTaggedCall(ReplyIo& io, const TagSyntax& syntax, const ParameterTypes& types) {
  CallWriter call(&io);
  const bool ok = co_await ReadNamedCall(io, call, syntax, types);
  if (!ok) call.Complete();
  co_return ok;
}

}  // namespace weft
