// Applies sampling advice to turns and to the ends of answers. The precedence is the same wherever
// a turn comes from: the request, the flags, the model's authors, the caller's own defaults.
//
// Pure functions; any thread.
#ifndef WEFT_HOST_SAMPLING_DEFAULTS_H_
#define WEFT_HOST_SAMPLING_DEFAULTS_H_

#include <string>

#include "formats/sampling_advice.h"
#include "host/host.h"
#include "tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

// `own`, overridden by the advice.
SamplingOptions Advised(SamplingOptions own, const SamplingAdvice& advice);

// The ends of answers given by the advice. A text that is a control token ends answers as a token,
// so that its text does not matter; the others are texts.
AnswerEnds EndsOf(const SamplingAdvice& advice, const Tokenizer& tokenizer);

// Adds tokens that end an answer, unless the turn ignores the model's own ends.
void AddEndTokens(const std::vector<int32_t>& tokens, TurnOptions* turn);

// For the log: "temperature 0.2, top_p 0.9 (catalogue); top_k 40, min_p 0.05 (Weft)".
std::string DescribeSampling(const SamplingAdvice& flags, const SamplingAdvice& model,
                             const std::string& model_by);

}  // namespace weft::serve

#endif  // WEFT_HOST_SAMPLING_DEFAULTS_H_
