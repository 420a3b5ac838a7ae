// The conversations that a front end has seen lately, as text and as the tokens that the
// model read and wrote, so that a history that a client sends back becomes the tokens
// which the engine has computed already.
//
// A conversation is held once, as far as it has come; its forks are others. Bounded: the one
// not used for longest is forgotten first, and then merely encoded anew, which gives other
// tokens where the model had not spelled as the tokenizer would. Domains do not see each
// other's. Any thread.
#ifndef WEFT_HOST_PROMPT_MEMORY_H_
#define WEFT_HOST_PROMPT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "chat/chat_context.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

class PromptMemory {
 public:
  struct Limits {
    size_t contexts_per_domain = 1024;
    size_t bytes = size_t{64} << 20;  // of all domains together
    // What a context holds. A prompt that has clearly more is neither encoded to its end nor
    // remembered. 0: there is no limit.
    int64_t tokens = 0;
  };

  PromptMemory(std::shared_ptr<const Tokenizer> tokenizer, const Limits& limits);

  // The tokens of a rendered prompt: those of the remembered conversation that shares
  // most text with it as far as it does, the rest encoded. More than Limits::tokens are
  // perhaps not all.
  std::vector<TokenId> Encode(std::string_view domain, std::string_view text);
  // The model continued `prompt`, which Encode gave the tokens `prompt_tokens`, with
  // `reply`.
  void Remember(std::string_view domain, std::string_view prompt,
                std::span<const TokenId> prompt_tokens, std::span<const TokenId> reply);

  size_t size() const;  // contexts held

 private:
  struct Entry {
    std::string domain;
    std::string text;
    ChatContext context;
    size_t bytes = 0;
  };

  // A copy of the context that shares most with `text`, made to stand for it.
  ChatContext ContextFor(std::string_view domain, std::string_view text);
  // Puts it first, in place of those of the domain that say the beginning of the same.
  void Insert(Entry entry);
  void Trim(std::string_view domain) WEFT_REQUIRES(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const PromptEncoder encoder_;
  const Limits limits_;

  mutable Mutex mutex_;
  std::list<Entry> entries_ WEFT_GUARDED_BY(mutex_);  // the one used last is first
  size_t bytes_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_PROMPT_MEMORY_H_
