// Calls that a conversation repeats: models, small ones above all, make the same call again and
// again although its result stays the same.
//
// Everything here is computed from the conversation alone, so that a message that is sent again
// reads the same. Any thread.
#ifndef WEFT_DOORS_API_REPEATED_CALLS_H_
#define WEFT_DOORS_API_REPEATED_CALLS_H_

#include <string>
#include <vector>

#include "answer/chat/conversation.h"

namespace weft::serve {

// Warns if the conversation ends with the same call and the same result, at least three times in a
// row. With `add_notes`, the third result of every such row and those after it get a note that the
// model can read.
void TellRepeatedCalls(bool add_notes, Conversation* conversation,
                       std::vector<std::string>* warnings);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_REPEATED_CALLS_H_
