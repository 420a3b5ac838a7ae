#include "answer/answer_ends.h"

#include <string>

namespace weft::serve {

AnswerEnds EndsOf(const SamplingAdvice& advice, const Tokenizer& tokenizer) {
  AnswerEnds ends;
  for (const std::string& stop : advice.stop) {
    const TokenId id = tokenizer.Find(stop);
    if (id == kNoToken || !tokenizer.IsControl(id)) {
      if (stop.size() <= kMaxStopStringBytes) ends.texts.push_back(stop);
    } else if (!tokenizer.IsEndOfGeneration(id)) {
      ends.tokens.push_back(id);
    }
  }
  return ends;
}

void AddEndTokens(const std::vector<int32_t>& tokens, TurnOptions* turn) {
  if (turn->ignore_eos) return;
  for (const int32_t token : tokens) {
    if (turn->stop_tokens.size() < kMaxStopTokens) turn->stop_tokens.push_back(token);
  }
}

}  // namespace weft::serve
