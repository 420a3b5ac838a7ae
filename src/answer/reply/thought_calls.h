// A layer over a format's own parser that takes calls out of a thought that the model did not end.
//
// Some models write a call in the middle of their thought and stop there. A thought that ends with
// whole calls of offered tools, and nothing after them, is a thought and these calls. Any other
// markup in a thought is part of it: the model considers a call.
//
// Only text that may still be such an end is held back. Owned by its user; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_THOUGHT_CALLS_H_
#define WEFT_ANSWER_REPLY_THOUGHT_CALLS_H_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "answer/reply/parameter_types.h"
#include "answer/reply/reply.h"

namespace weft {

// `opens`: the markers of calls. `new_parser` makes a parser of text that begins with one.
std::unique_ptr<ReplyParser> MakeThoughtCalls(
    std::unique_ptr<ReplyParser> own, std::vector<std::string_view> opens, ParameterTypes tools,
    std::function<std::unique_ptr<ReplyParser>()> new_parser);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_THOUGHT_CALLS_H_
