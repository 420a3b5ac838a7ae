// The tokens of a conversation, beside the text that they stand for.
//
// A chat template renders the whole conversation anew for every turn. Encoded anew, an
// answer seldom gives the tokens that the model made it of, so the model would have to
// read the conversation again from the first answer on. A ChatContext therefore
// remembers, at many places, which text its tokens stand for up to there (its length and
// a hash), keeps its own tokens as far as a new rendering says the same, and has only
// the rest encoded.
//
// A value; one thread at a time.
#ifndef WEFT_CHAT_CHAT_CONTEXT_H_
#define WEFT_CHAT_CHAT_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tokens.h"
#include "tokenizer/tokenizer.h"

namespace weft {

// How text becomes tokens. Its functions may be called from any thread.
struct PromptEncoder {
  // `at_start`: nothing comes before the text.
  std::function<std::vector<TokenId>(std::string_view text, bool at_start)> encode;
  // Whether encoding `rest` apart from what comes before it, which ends with the token
  // `before`, gives the tokens that it has there.
  std::function<bool(TokenId before, std::string_view rest)> may_cut;
};

// Of rendered prompts: control tokens are recognised, and the token at the start is
// there once, whether the template writes it or the tokenizer adds it. Of a text that has
// clearly more than `most_tokens` only the first ones are given, more than these (0: all are).
PromptEncoder MakePromptEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                                int64_t most_tokens = 0);

class ChatContext {
 public:
  // The tokens before this place stand for the first `text_bytes` of the rendered text.
  struct Mark {
    int64_t text_bytes = 0;
    int64_t n_tokens = 0;
    uint64_t text_hash = 0;  // of the bytes since the mark before, seeded with its hash
  };

  ChatContext() : ChatContext(std::vector<TokenId>()) {}
  // Tokens whose text is not known stand before everything that is rendered.
  explicit ChatContext(std::vector<TokenId> before);
  // What tokens() and marks() of another one gave. False when they do not belong together.
  bool Restore(std::vector<TokenId> tokens, std::vector<Mark> marks);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<Mark>& marks() const { return marks_; }

  // Makes the tokens stand for `rendered`, keeping those that do.
  void Become(std::string_view rendered, const PromptEncoder& encoder);
  // The model said `token`, which reads `piece`.
  void Append(TokenId token, std::string_view piece);

 private:
  size_t MatchingMark(std::string_view rendered, const PromptEncoder& encoder) const;

  std::vector<TokenId> tokens_;
  std::vector<Mark> marks_;  // ascending; the first has no text
};

// How many tokens both begin with.
int64_t CommonTokens(const ChatContext& a, const ChatContext& b);

}  // namespace weft

#endif  // WEFT_CHAT_CHAT_CONTEXT_H_
