// Removes control tokens that no parser recognised as markup from a reply's text.
//
// Owned by its user; one thread at a time.
#ifndef WEFT_ANSWER_REPLY_CONTROL_FILTER_H_
#define WEFT_ANSWER_REPLY_CONTROL_FILTER_H_

#include <memory>
#include <string>
#include <vector>

#include "answer/reply/reply.h"

namespace weft {

// Wraps `parser` and removes these texts from its content and reasoning.
std::unique_ptr<ReplyParser> MakeControlFilter(std::unique_ptr<ReplyParser> parser,
                                               std::vector<std::string> hidden);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_CONTROL_FILTER_H_
