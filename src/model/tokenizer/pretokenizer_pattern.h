// Pre-tokenizer rules as regular expressions, for programs that only know those, i.e. Hugging
// Face's tokenizer.json.
//
// Pure functions; any thread.
#ifndef WEFT_MODEL_TOKENIZER_PRETOKENIZER_PATTERN_H_
#define WEFT_MODEL_TOKENIZER_PRETOKENIZER_PATTERN_H_

#include <string>
#include <vector>

#include "model/tokenizer/pretokenizer.h"

namespace weft {

// One pattern per stage, to be applied in turn: each splits the pieces of the previous stage at its
// matches, and text between two matches stays one piece. The patterns use only features common to
// Oniguruma, PCRE2 (with UTF and UCP) and JavaScript (with the flag u), and mean the same in all of
// them. Backtracking engines may take quadratic time.
std::vector<std::string> PatternsOf(const PreTokenizer& pre_tokenizer);

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_PRETOKENIZER_PATTERN_H_
