// Tracks where in a text an answer is as it is written, to guess what it copies next: if it has
// been copying, the text's next token; otherwise the place where its last tokens occur in the text,
// or near which it left the text.
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
  // The next token of the answer. `text`: as for Next.
  void Follow(std::span<const TokenId> text, TokenId token);
  // The answer probably begins like the text.
  void StartAtBeginning() {
    at_ = 0;
    length_ = kWorthReturning;
  }
  // The text has changed other than by growing.
  void Forget() { *this = TextFollower(); }

  // Where in `text` the answer probably continues after `context`, and how many tokens before that
  // place match: 0 if only its position speaks for it.
  NgramIndex::Match Next(std::span<const TokenId> text, const NgramIndex& index,
                         std::span<const TokenId> context);

  // How many tokens of the answer were the text's next one.
  int64_t kept() const { return kept_; }

 private:
  // A text followed for fewer tokens is not resumed near where it was left.
  static constexpr int64_t kWorthReturning = 8;

  NgramIndex::Match NearWhereItLeft(std::span<const TokenId> text,
                                    std::span<const TokenId> context) const;

  int64_t at_ = -1;       // of the text's next token while it is followed
  int64_t length_ = 0;    // tokens followed, and those that matched before
  int64_t left_at_ = -1;  // where the answer last left the text,
  int64_t since_ = 0;     // and how many tokens ago
  int64_t kept_ = 0;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SPECULATION_TEXT_FOLLOWER_H_
