// Notices that generated tokens go round in a loop.
#ifndef WEFT_ENGINE_LOOP_WATCH_H_
#define WEFT_ENGINE_LOOP_WATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/tokens.h"

namespace weft {

// Small models that decode greedily come to repeat a phrase until the context is full. A loop
// is a block of at most kLongestBlock tokens that fills the end of the text at least
// kLeastTimes times and kLeastTokens tokens long. In 12.8 million tokens of code, documentation
// and data there is none; what comes closest is 237 tokens long, with a block of 3. Such are
// tables in which one value stands again and again, and so a block of fewer than kShortBlock
// tokens must last longer.
class LoopWatch {
 public:
  static constexpr size_t kLeastTimes = 8;
  static constexpr size_t kLeastTokens = 256;
  static constexpr size_t kLongestBlock = 512;
  static constexpr size_t kShortBlock = 8;
  static constexpr size_t kLeastTokensOfShort = 512;

  // Whether `text`, to which one token was added since the last call, ends in a loop. It looks
  // every 32 tokens; what it says depends on the tokens alone.
  bool EndsInLoop(std::span<const TokenId> text);

 private:
  std::vector<uint32_t> border_;  // scratch
};

}  // namespace weft

#endif  // WEFT_ENGINE_LOOP_WATCH_H_
