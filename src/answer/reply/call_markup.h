// Markup that models write around calls instead of their own format's: fences and tags.
//
// Tasks of one parser; see answer/reply/task.h.
#ifndef WEFT_ANSWER_REPLY_CALL_MARKUP_H_
#define WEFT_ANSWER_REPLY_CALL_MARKUP_H_

#include <string>

#include "answer/reply/call_syntax.h"
#include "answer/reply/io.h"
#include "answer/reply/parameter_types.h"
#include "answer/reply/task.h"

namespace weft {

struct CallMarkup {
  enum class Kind {
    kNone,   // not call markup
    kFence,  // three backticks or more, and no language or one in which calls are written
    kOpen,   // <tool_call>, <xml>, <|im_start|> ...
    kNamed,  // <function=NAME>, <tool name="NAME">, <NAME>
    kClose,  // </tool_call> ...
    kCut,    // the text ends inside one of these
  };
  Kind kind = Kind::kNone;
  std::string name;                 // kNamed: the function; kFence: the language
  const TagSyntax* tags = nullptr;  // syntax of its parameters
};

// Reads what begins with the next byte, a backtick or "<", and holds it. If it is not markup, holds
// what was read and does not take the byte that did not fit. True: `markup` is set to something
// other than kNone or kCut. `any_close`: accepts end tags of any name.
ReplyTask<bool> TakeCallMarkup(ReplyIo& io, const ParameterTypes& tools, bool any_close,
                               CallMarkup* markup);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_CALL_MARKUP_H_
