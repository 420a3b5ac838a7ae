// Calls as models write them that do not keep to their format: JSON objects that name a
// function and its arguments, under the keys and in the shapes that are seen.
//
//   {"name": "f", "arguments": {...}}       "tool", "function", "parameters", "input" ... too
//   {"type": "function", "function": {"name": "f", "arguments": "{...}"}}
//   {"tool_calls": [{...}, ...]}            or the list alone, or [TOOL_CALLS] and the list
//   {{"name": "f", "arguments": {...}}}
//   {'name': 'f', 'arguments': {...}}       with the literals of Python
//
// It is a call only where the name is that of an offered tool and the arguments are an
// object. A reader sees at the first key, and then at the name's letters, whether it may
// be one.
//
// Tasks of one parser; see reply_task.h.
#ifndef WEFT_REPLY_LOOSE_CALL_H_
#define WEFT_REPLY_LOOSE_CALL_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reply/call_syntax.h"
#include "reply/io.h"
#include "reply/parameter_types.h"
#include "reply/task.h"

namespace weft {

struct LooseCall {
  std::string name, id;
  std::optional<std::string> arguments;  // JSON text of an object
};

// An object, or a list of them; the next byte is its bracket. True: all are calls of `tools`,
// which are added to `calls`. Nothing is given out and all stays held, also when false: the
// byte that did not fit is then not taken.
ReplyTask<bool> ReadLooseCalls(ReplyIo& io, const ParameterTypes& tools,
                               std::vector<LooseCall>* calls);
// The same where markup has named the function: its arguments, as an object, as tagged
// parameters of `tags`, or within an object that says the name once more.
ReplyTask<bool> ReadLooseArguments(ReplyIo& io, const ParameterTypes& tools, const TagSyntax& tags,
                                   LooseCall* call);

// Gives them out; what is held is forgotten.
void GiveOutCalls(const std::vector<LooseCall>& calls, ReplyIo& io);

}  // namespace weft

#endif  // WEFT_REPLY_LOOSE_CALL_H_
