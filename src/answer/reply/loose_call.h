// Calls by models that ignore their own format: JSON objects that name a function and its
// arguments, under the keys and in the shapes seen in practice.
//
//   {"name": "f", "arguments": {...}}       "tool", "function", "parameters", "input" ... too
//   {"type": "function", "function": {"name": "f", "arguments": "{...}"}}
//   {"tool_calls": [{...}, ...]}            or the list alone, or [TOOL_CALLS] and the list
//   {{"name": "f", "arguments": {...}}}
//   {'name': 'f', 'arguments': {...}}       with Python literals
//
// It is a call only if it names an offered tool and its arguments are an object. A reader can tell
// from the first key, and then from the letters of the name, whether it may be one. Whether it is
// one shows no earlier than at the last bracket, so no arguments are emitted before, other than in
// a format's own syntax, whose marker says that a call follows. Up to there the object may prove to
// be text, all of it: a member that no call has may follow the arguments ("result", in a log), the
// arguments may contain "properties" (a tool's description), the next object of a list may be no
// call, and a reply may end within the arguments (an example that is broken off on purpose). The id
// may come last too.
//
// Tasks of one parser; see answer/reply/task.h.
#ifndef WEFT_ANSWER_REPLY_LOOSE_CALL_H_
#define WEFT_ANSWER_REPLY_LOOSE_CALL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/reply/call_syntax.h"
#include "answer/reply/io.h"
#include "answer/reply/parameter_types.h"
#include "answer/reply/task.h"

namespace weft {

struct LooseCall {
  std::string name, id;
  std::optional<std::string> arguments;  // JSON text of an object
};

// Reads an object or a list of objects, starting at its bracket. True: all are calls of `tools`,
// and are added to `calls`. Emits nothing and holds everything, even if false, in which case the
// byte that did not fit is not taken.
ReplyTask<bool> ReadLooseCalls(ReplyIo& io, const ParameterTypes& tools,
                               std::vector<LooseCall>* calls);
// The same after markup that named the function: reads its arguments, as an object, as tagged
// parameters of `tags`, or inside an object that repeats the name.
ReplyTask<bool> ReadLooseArguments(ReplyIo& io, const ParameterTypes& tools, const TagSyntax& tags,
                                   LooseCall* call);

// Emits the calls and forgets the held text.
void GiveOutCalls(const std::vector<LooseCall>& calls, ReplyIo& io);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_LOOSE_CALL_H_
