// Calls that a reply's own format does not know: a layer over its parser, which looks through
// the content that this one gives out.
//
// Around a call (see loose_call.h) may stand fences and tags (call_markup.h), which go with
// it, and text, which stays. Whatever is no call stays as it was written, byte for byte. Only
// what may still become a call is held back; the call is given out when it is complete,
// since that is when it is known to be one.
//
// Owned by its user; one thread at a time.
#ifndef WEFT_REPLY_LENIENT_PARSER_H_
#define WEFT_REPLY_LENIENT_PARSER_H_

#include <memory>

#include "reply/parameter_types.h"
#include "reply/reply.h"

namespace weft {

// `tools`: those that were offered; a call of others is none.
std::unique_ptr<ReplyParser> MakeLenientParser(std::unique_ptr<ReplyParser> own,
                                               ParameterTypes tools);

}  // namespace weft

#endif  // WEFT_REPLY_LENIENT_PARSER_H_
