// Recent conversations of a front end, as text and as the tokens that the model read and wrote, so
// that the history in a client's next request maps to the tokens that the engine has already
// computed.
//
// Each conversation is stored once, up to its current end; forks are stored separately. Bounded:
// the least recently used one is forgotten first and is then simply encoded again, which gives
// different tokens where the model's spelling differed from the tokenizer's. Domains cannot see
// each other's conversations. Any thread.
#ifndef WEFT_ANSWER_PROMPT_MEMORY_H_
#define WEFT_ANSWER_PROMPT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_context.h"
#include "answer/prompt_items.h"
#include "base/mutex.h"
#include "model/tokenizer/tokenizer.h"

namespace weft::serve {

// A conversation up to its current end. Immutable.
struct RememberedPrompt {
  std::string text;
  ChatContext context;
};

// The latest prompt in a remembered conversation that was submitted: what it was made of (null:
// none was), its length, and its length with the reply.
struct SubmittedPrompt {
  std::shared_ptr<const PromptItems> items = nullptr;
  size_t prompt_bytes = 0, end_bytes = 0;
  int64_t end_tokens = 0;
  bool has_reply = false;  // so the engine computed all of it but the last token
};

// The submitted prompt that has the most text in common with a new one.
struct EarlierPrompt {
  std::shared_ptr<const RememberedPrompt> prompt = nullptr;  // null: none has any
  SubmittedPrompt submitted = {};
  size_t common_bytes = 0;
};

class PromptMemory {
 public:
  struct Limits {
    size_t contexts_per_domain = 1024;
    size_t bytes = size_t{64} << 20;  // for all domains together
    // Size of a context. A prompt that clearly exceeds it is neither encoded to its end nor
    // remembered. 0: no limit.
    int64_t tokens = 0;
  };

  PromptMemory(std::shared_ptr<const Tokenizer> tokenizer, const Limits& limits);

  // The tokens of a rendered prompt: the longest common part with a remembered conversation keeps
  // its tokens, parts in `known` have theirs, the rest is encoded. If there are more than
  // Limits::tokens, they may be incomplete.
  std::vector<TokenId> Encode(std::string_view domain, std::string_view text,
                              std::span<const TokenSpan> known = {});
  // `text`, which Encode has just encoded and was made of `items`, is going to be submitted.
  // Returns the former submission.
  EarlierPrompt Track(std::string_view domain, std::string_view text,
                      std::shared_ptr<const PromptItems> items);
  // The model continued `prompt`, for which Encode returned `prompt_tokens`, with `reply`. `items`
  // are the prompt's if it was tracked.
  void Remember(std::string_view domain, std::string_view prompt,
                std::span<const TokenId> prompt_tokens, std::span<const TokenId> reply,
                std::shared_ptr<const PromptItems> items = nullptr);

  size_t size() const;  // number of stored contexts

 private:
  struct Entry {
    std::string domain;
    std::shared_ptr<const RememberedPrompt> prompt;
    SubmittedPrompt submitted = {};
    size_t bytes = 0;
  };

  // A copy of the context with the longest common text, updated to stand for `text`.
  ChatContext ContextFor(std::string_view domain, std::string_view text,
                         std::span<const TokenSpan> known);
  // Puts it first and removes those of the domain that hold only its beginning. If it was not
  // submitted, it takes over what is known of those that were.
  void Insert(std::string_view domain, RememberedPrompt prompt, SubmittedPrompt submitted);
  void Trim(std::string_view domain) WEFT_REQUIRES(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const PromptEncoder encoder_;
  const Limits limits_;

  mutable Mutex mutex_;
  std::list<Entry> entries_ WEFT_GUARDED_BY(mutex_);  // most recently used first
  size_t bytes_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_MEMORY_H_
