// The rules of a pre-tokenizer written as regular expressions, for programs that know
// only those: Hugging Face's tokenizer.json.
//
// Pure functions; any thread.
#ifndef WEFT_TOKENIZER_PRETOKENIZER_PATTERN_H_
#define WEFT_TOKENIZER_PRETOKENIZER_PATTERN_H_

#include <string>
#include <vector>

#include "tokenizer/pretokenizer.h"

namespace weft {

// One pattern per stage, to be applied in turn: each cuts the pieces of the one before
// at its matches, and what lies between two matches stays a piece. They mean the same
// to Oniguruma, PCRE2 (with UTF and UCP) and JavaScript (with the flag u), so they use
// only what the three have in common. Backtracking engines may take quadratic time.
std::vector<std::string> PatternsOf(const PreTokenizer& pre_tokenizer);

}  // namespace weft

#endif  // WEFT_TOKENIZER_PRETOKENIZER_PATTERN_H_
