// A layer over a format's own parser that looks through its content for calls in other formats.
//
// A call (see loose_call.h) may be surrounded by fences and tags (call_markup.h), which are removed
// with it, and by text, which stays. Text that is not a call is preserved byte for byte. Only what
// may still become a call is held back; a call is emitted when it is complete, since only then is
// it known to be one.
//
// Owned by its user; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_LENIENT_PARSER_H_
#define WEFT_ANSWER_REPLY_LENIENT_PARSER_H_

#include <memory>

#include "answer/reply/parameter_types.h"
#include "answer/reply/reply.h"

namespace weft {

// `tools`: the offered tools; calls of others are not recognised.
std::unique_ptr<ReplyParser> MakeLenientParser(std::unique_ptr<ReplyParser> own,
                                               ParameterTypes tools);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_LENIENT_PARSER_H_
