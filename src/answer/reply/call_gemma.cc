// Calls as Gemma 4 writes them: call:f{a:1,b:<|"|>x<|"|>,c:[true]}
#include "answer/reply/call_syntax.h"

namespace weft {
namespace {

constexpr std::string_view kQuote = "<|\"|>";
constexpr size_t kMaxKeyBytes = 256;

ReplyTask<bool> CopyGemmaValue(ReplyIo& io, CallWriter& call);

// Text between quotes, copied to `call` or, if that is null, into `text`. There is no escape for
// quotes: the text ends at the next one.
ReplyTask<bool> TakeQuoted(ReplyIo& io, CallWriter* call, std::string* text) {
  const bool quoted = co_await TakeText(io, kQuote);
  if (!quoted) co_return false;
  if (call != nullptr) call->StartString();
  std::string open;  // a partial end quote
  while (true) {
    const int c = co_await io.Peek();
    if (c < 0) co_return false;
    io.Take();
    open += static_cast<char>(c);
    if (open == kQuote) break;
    size_t released = 0;
    while (!kQuote.starts_with(std::string_view(open).substr(released))) ++released;
    if (released == 0) continue;
    if (call != nullptr) {
      // A partial quote is not emitted yet, but StringText releases all that is held.
      call->StringText(std::string_view(open).substr(0, released));
      io.HoldAgain(std::string_view(open).substr(released));
    } else {
      text->append(open, 0, released);
    }
    open.erase(0, released);
  }
  if (call != nullptr) call->EndString();
  co_return true;
}

ReplyTask<bool> TakeKey(ReplyIo& io, CallWriter& call) {
  std::string key;
  const int c = co_await io.Peek();
  bool ok = false;
  if (c == kQuote[0]) {
    ok = co_await TakeQuoted(io, nullptr, &key);
  } else {
    ok = co_await TakeBefore(io, ":,{}[]<\n", kMaxKeyBytes, &key);
    ok = ok && !key.empty();
  }
  if (!ok) co_return false;
  const bool colon = co_await TakeText(io, ":");
  if (!colon) co_return false;
  call.Key(key);
  co_await TakeSpace(io);
  co_return true;
}

ReplyTask<bool> CopyBracketRest(ReplyIo& io, CallWriter& call, char closer) {
  for (bool first = true;; first = false) {
    bool more = false;
    const bool fits = co_await TakeToElement(io, closer, first, /*may_trail=*/false, &more);
    if (!fits) co_return false;
    if (!more) break;
    if (closer == '}') {
      const bool has_key = co_await TakeKey(io, call);
      if (!has_key) co_return false;
    } else {
      call.Element();
    }
    const bool ok = co_await CopyGemmaValue(io, call);
    if (!ok) co_return false;
  }
  call.Close();
  co_return true;
}

ReplyTask<bool> CopyGemmaValue(ReplyIo& io, CallWriter& call) {
  const int c = co_await io.Peek();
  if (c == kQuote[0]) {
    const bool ok = co_await TakeQuoted(io, &call, nullptr);
    co_return ok;
  }
  if (c == '{' || c == '[') {
    io.Take();
    if (!call.Open(static_cast<char>(c))) co_return false;
    const bool ok = co_await CopyBracketRest(io, call, c == '{' ? '}' : ']');
    co_return ok;
  }
  const bool ok = co_await CopyJsonValue(io, call);
  co_return ok;
}

ReplyTask<bool> ReadCall(ReplyIo& io, CallWriter& call) {
  const bool prefixed = co_await TakeText(io, "call:");
  if (!prefixed) co_return false;
  std::string name;
  const bool named = co_await TakeBefore(io, "{<\n", CallWriter::kMaxNameBytes, &name);
  if (!named || !call.SetName(name)) co_return false;
  const bool open = co_await TakeText(io, "{");
  if (!open) co_return false;
  call.Open('{');
  const bool ok = co_await CopyBracketRest(io, call, '}');
  co_return ok;
}

}  // namespace

ReplyTask<bool> ReadGemmaCall(ReplyIo& io) {
  CallWriter call(&io);
  const bool ok = co_await ReadCall(io, call);
  if (!ok) call.Complete();
  co_return ok;
}

}  // namespace weft
