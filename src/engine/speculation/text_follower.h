// Tracks an answer's position in a text while the answer is written, to predict what it copies
// next. If it has been copying, that is the text's next token; otherwise the position where its
// last tokens occur in the text, or one near which it left the text.
//
// One object per answer and text; the text and its index are passed in. One thread.
#ifndef WEFT_ENGINE_SPECULATION_TEXT_FOLLOWER_H_
#define WEFT_ENGINE_SPECULATION_TEXT_FOLLOWER_H_

#include <cstdint>
#include <span>

#include "base/tokens.h"
#include "engine/speculation/ngram_index.h"

namespace weft {

class TextFollower {
 public:
  // Adds the next token of the answer. `text`: as for Next.
  void Follow(std::span<const TokenId> text, TokenId token);
  // Assumes that the answer begins like the text.
  void StartAtBeginning() {
    at_ = 0;
    length_ = kWorthReturning;
  }
  // Call when the text has changed other than by growing.
  void Forget() { *this = TextFollower(); }

  // The position in `text` where the answer probably continues after `context`, and how many tokens
  // before it match: 0 if only the position makes it likely.
  NgramIndex::Match Next(std::span<const TokenId> text, const NgramIndex& index,
                         std::span<const TokenId> context);

  // How many tokens of the answer were the text's next one.
  int64_t kept() const { return kept_; }

 private:
  // After a text was followed for fewer tokens, it is not resumed near where it was left.
  static constexpr int64_t kWorthReturning = 8;

  NgramIndex::Match NearWhereItLeft(std::span<const TokenId> text,
                                    std::span<const TokenId> context) const;

  int64_t at_ = -1;       // the text's next token while it is followed, else -1
  int64_t length_ = 0;    // tokens followed, plus those that matched before
  int64_t left_at_ = -1;  // where the answer last left the text,
  int64_t since_ = 0;     // and how many tokens ago
  int64_t kept_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_TEXT_FOLLOWER_H_
