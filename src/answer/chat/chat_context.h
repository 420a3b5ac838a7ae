// The tokens of a conversation, along with the text they stand for.
//
// A chat template renders the whole conversation again for every turn. Encoding an answer's text
// seldom gives the tokens that the model generated, so the model would have to recompute everything
// from the first answer on. A ChatContext therefore records, at many positions, the text its tokens
// stand for (its length and a hash), keeps its own tokens as far as a new rendering has the same
// text, and encodes only the rest.
//
// A value; one thread at a time.
#ifndef WEFT_ANSWER_CHAT_CHAT_CONTEXT_H_
#define WEFT_ANSWER_CHAT_CHAT_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tokens.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {

// How text becomes tokens. The functions may be called from any thread.
struct PromptEncoder {
  // `at_start`: nothing precedes the text.
  std::function<std::vector<TokenId>(std::string_view text, bool at_start)> encode;
  // Whether `rest` may be encoded separately from what precedes it, which ends with the token
  // `before`, and give the same tokens.
  std::function<bool(TokenId before, std::string_view rest)> may_cut;
};

// For rendered prompts: recognises control tokens, and makes sure that the start token occurs once,
// whether the template writes it or the tokenizer adds it. If a text clearly exceeds `max_tokens`,
// returns only its first tokens, more than `max_tokens` of them (0: always all).
PromptEncoder MakePromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, int64_t max_tokens = 0);

// A part of a rendered text whose tokens are known: what the model itself wrote.
struct TokenSpan {
  size_t begin = 0, end = 0;  // bytes
  std::vector<TokenId> tokens;
};

class ChatContext {
 public:
  // The tokens before this position stand for the first `text_bytes` of the rendered text.
  struct Mark {
    int64_t text_bytes = 0;
    int64_t n_tokens = 0;
    uint64_t text_hash = 0;  // over the bytes since the previous mark, seeded with its hash
  };

  ChatContext() : ChatContext(std::vector<TokenId>()) {}
  // `before` are tokens of unknown text that precede everything rendered.
  explicit ChatContext(std::vector<TokenId> before);
  // Restores from the tokens() and marks() of another one. False if they do not match.
  bool Restore(std::vector<TokenId> tokens, std::vector<Mark> marks);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<Mark>& marks() const { return marks_; }

  // Makes the tokens stand for `rendered`, keeping matching ones. `known` are in ascending order,
  // do not overlap, and each continues text that may be encoded without it.
  void Become(std::string_view rendered, const PromptEncoder& encoder,
              std::span<const TokenSpan> known = {});
  // The model generated `token`, whose text is `piece`.
  void Append(TokenId token, std::string_view piece);

 private:
  size_t MatchingMark(std::string_view rendered, const PromptEncoder& encoder) const;
  void Add(std::string_view text, std::span<const TokenId> tokens);

  std::vector<TokenId> tokens_;
  std::vector<Mark> marks_;  // ascending; the first has no text
};

// Length of the common prefix in tokens.
int64_t CommonTokens(const ChatContext& a, const ChatContext& b);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CHAT_CONTEXT_H_
