// Calls whose name and object stand between markers: those of DeepSeek and Kimi.
#include <string>
#include <string_view>

#include "answer/reply/call_syntax.h"

namespace weft {

// NAME<sep>{...}, or function<sep>NAME and the object in a fence.
ReplyTask<bool> ReadDeepSeekCall(ReplyIo& io) {
  CallWriter call(&io);
  std::string name;
  bool ok = co_await TakeBefore(io, "<\n", CallWriter::kMaxNameBytes, &name);
  if (ok) ok = co_await TakeText(io, "<｜tool▁sep｜>");
  if (!ok) co_return false;
  co_await TakeSpace(io);
  const int c = co_await io.Peek();
  if (c != '{') {
    name.clear();
    ok = co_await TakeBefore(io, "\n<`{", CallWriter::kMaxNameBytes, &name);
    if (!ok) co_return false;
    co_await TakeSpace(io);
    ok = co_await TakeText(io, "```json");
    if (!ok) co_return false;
    co_await TakeSpace(io);
  }
  ok = call.SetName(name);
  if (ok) ok = co_await CopyJsonObject(io, call);
  if (!ok) call.Complete();
  co_return ok;
}

// functions.NAME:INDEX<|tool_call_argument_begin|>{...}; the text before the separator is the
// call's id.
ReplyTask<bool> ReadKimiCall(ReplyIo& io) {
  CallWriter call(&io);
  co_await TakeSpace(io);
  std::string id;
  bool ok = co_await TakeBefore(io, "< \n{", CallWriter::kMaxNameBytes, &id);
  if (!ok) co_return false;
  std::string_view name = id;
  constexpr std::string_view kPrefix = "functions.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.rfind(':'));
  co_await TakeSpace(io);
  ok = co_await TakeText(io, "<|tool_call_argument_begin|>");
  if (!ok) co_return false;
  co_await TakeSpace(io);
  call.SetId(id);
  ok = call.SetName(name);
  if (ok) ok = co_await CopyJsonObject(io, call);
  if (!ok) call.Complete();
  co_return ok;
}

}  // namespace weft
