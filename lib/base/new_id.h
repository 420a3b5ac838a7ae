// Ids that nobody can guess: of answers, of calls, of marks in a prompt. Any thread.
#ifndef WEFT_BASE_NEW_ID_H_
#define WEFT_BASE_NEW_ID_H_

#include <string>
#include <string_view>

namespace weft {

// `prefix` followed by `n_random` unguessable letters and digits.
std::string NewId(std::string_view prefix, int n_random = 24);

}  // namespace weft

#endif  // WEFT_BASE_NEW_ID_H_
