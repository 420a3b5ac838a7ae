// Control tokens that no parser has taken for markup, left out of what a reply shows.
//
// Owned by its user; one thread at a time.
#ifndef WEFT_REPLY_CONTROL_FILTER_H_
#define WEFT_REPLY_CONTROL_FILTER_H_

#include <memory>
#include <string>
#include <vector>

#include "reply/reply.h"

namespace weft {

// What `parser` gives, without these texts in its content and its reasoning.
std::unique_ptr<ReplyParser> MakeControlFilter(std::unique_ptr<ReplyParser> parser,
                                               std::vector<std::string> hidden);

}  // namespace weft

#endif  // WEFT_REPLY_CONTROL_FILTER_H_
