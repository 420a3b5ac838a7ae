// The ends of answers that sampling advice gives. Pure functions; any thread.
#ifndef WEFT_ANSWER_ANSWER_ENDS_H_
#define WEFT_ANSWER_ANSWER_ENDS_H_

#include <cstdint>
#include <vector>

#include "answer/chat/chat_format.h"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

// A text that is a control token ends answers as a token, so that its text does not matter; the
// others are texts.
AnswerEnds EndsOf(const SamplingAdvice& advice, const Tokenizer& tokenizer);

// Adds tokens that end an answer, unless the turn ignores the model's own ends.
void AddEndTokens(const std::vector<int32_t>& tokens, TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ANSWER_ENDS_H_
