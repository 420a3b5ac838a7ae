// What advice about sampling means for turns: over what a caller has of his own, and for the
// ends of answers. The order is the same wherever a turn comes from: what a request says, what
// the flags say, what the model's makers say, what the caller has where nobody says anything.
//
// Functions of their arguments; any thread.
#ifndef WEFT_HOST_SAMPLING_DEFAULTS_H_
#define WEFT_HOST_SAMPLING_DEFAULTS_H_

#include <string>

#include "formats/sampling_advice.h"
#include "host/host.h"
#include "tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

// `own`, with what the advice says in place of it.
SamplingOptions Advised(SamplingOptions own, const SamplingAdvice& advice);

// What ends answers by the advice. A text that is a control token ends as a token, whatever is
// done with its text; the others are texts.
AnswerEnds EndsOf(const SamplingAdvice& advice, const Tokenizer& tokenizer);

// Adds tokens that end an answer, in any case but where nothing of the model's is to end it.
void AddEndTokens(const std::vector<int32_t>& tokens, TurnOptions* turn);

// For the log: "temperature 0.2, top_p 0.9 (catalogue); top_k 40, min_p 0.05 (Weft)".
std::string DescribeSampling(const SamplingAdvice& flags, const SamplingAdvice& model,
                             const std::string& model_by);

}  // namespace weft::serve

#endif  // WEFT_HOST_SAMPLING_DEFAULTS_H_
