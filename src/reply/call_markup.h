// The markup that models put around calls in place of their format's own: fences and tags.
//
// Tasks of one parser; see reply_task.h.
#ifndef WEFT_REPLY_CALL_MARKUP_H_
#define WEFT_REPLY_CALL_MARKUP_H_

#include <string>

#include "reply/call_syntax.h"
#include "reply/io.h"
#include "reply/parameter_types.h"
#include "reply/task.h"

namespace weft {

struct CallMarkup {
  enum class Kind {
    kNone,   // no markup of a call
    kFence,  // three backticks or more, and a language that calls stand in or none
    kOpen,   // <tool_call>, <xml>, <|im_start|> ...
    kNamed,  // <function=NAME>, <tool name="NAME">, <NAME>
    kClose,  // </tool_call> ...
    kCut,    // the text ends within one of these
  };
  Kind kind = Kind::kNone;
  std::string name;                 // of the function for kNamed, of the language for kFence
  const TagSyntax* tags = nullptr;  // of its parameters
};

// What begins with the next byte, a backtick or "<". It is held; so is what was taken when
// there is none, and the byte that did not fit is not taken. True: it is in `markup`, which is
// not kNone or kCut. `any_close`: end tags of any name are taken.
ReplyTask<bool> TakeCallMarkup(ReplyIo& io, const ParameterTypes& tools, bool any_close,
                               CallMarkup* markup);

}  // namespace weft

#endif  // WEFT_REPLY_CALL_MARKUP_H_
