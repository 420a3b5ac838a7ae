// Detects generated text that repeats in a loop.
#ifndef WEFT_ENGINE_SAMPLING_LOOP_WATCH_H_
#define WEFT_ENGINE_SAMPLING_LOOP_WATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/tokens.h"

namespace weft {

// Small models that decode greedily often end up repeating a phrase until the context is full. A
// loop is a block of at most kLongestBlock tokens that fills the end of the text at least
// kMinTimes times and for at least kMinTokens tokens. 12.8 million tokens of code,
// documentation and data contain none; the closest is 237 tokens long, with a block of 3. Such near
// misses are tables that repeat one value, so blocks shorter than kShortBlock tokens must last
// longer.
class LoopWatch {
 public:
  static constexpr size_t kMinTimes = 8;
  static constexpr size_t kMinTokens = 256;
  static constexpr size_t kLongestBlock = 512;
  static constexpr size_t kShortBlock = 8;
  static constexpr size_t kMinTokensOfShort = 512;

  // Whether `text`, which has grown by one token since the last call, ends in a loop. Checks every
  // 32 tokens; the result depends on the tokens alone.
  bool EndsInLoop(std::span<const TokenId> text);

 private:
  std::vector<uint32_t> border_;  // scratch
};

}  // namespace weft

#endif  // WEFT_ENGINE_SAMPLING_LOOP_WATCH_H_
