// Makes the prompts of conversations: rendered by the chat template, with the model's earlier
// replies in its own words and tokens, and encoded so that the tokens of earlier turns stay as they
// were. Remembers what is submitted and answered for that.
//
// One per loaded model. Any thread.
#ifndef WEFT_ANSWER_PROMPT_MAKER_H_
#define WEFT_ANSWER_PROMPT_MAKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/prompt_memory.h"
#include "answer/prompt_rows.h"
#include "answer/prompt_trail.h"
#include "answer/reply_memory.h"
#include "base/status.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

struct SaidReply;

struct KnownPrompt {
  ChatPrompt prompt;
  // What was rendered: the request, with known replies in place of the client's versions.
  ChatRequest chat;
  std::vector<int32_t> tokens;
  // Instead of tokens, where input embeddings stand for texts.
  std::shared_ptr<const std::vector<PromptPart>> parts = nullptr;
  // For the reply to it; absent if replies are not remembered.
  std::optional<ReplyMemory::Place> place;
};

// The text of a submitted prompt, after which its reply is remembered. Empty: it is not.
struct PromptRecord {
  std::string text = {};
  std::shared_ptr<const PromptTrail> trail = nullptr;  // the same prompt's; may be null
  uint64_t agent = 0;  // whose prompt it begins with, see AgentPrompts; 0: nobody's
};

class PromptMaker {
 public:
  struct Options {
    PromptMemory::Limits memory = {};
    size_t reply_memory_bytes = size_t{64} << 20;
    // Whether replies are remembered and restored.
    bool restore_reasoning = true;
  };

  PromptMaker(std::shared_ptr<const Model> model, std::shared_ptr<const ChatFormat> chat,
              Options options);

  // INVALID_ARGUMENT if the template refuses the conversation, or exceeds its limits with it.
  StatusOr<ChatPrompt> Render(const ChatRequest& chat) const;
  // Tokens of a rendered prompt; earlier turns of the same conversation keep the tokens that the
  // model generated (see prompt_memory.h).
  std::vector<int32_t> Encode(std::string_view domain, std::string_view text,
                              std::span<const TokenSpan> known = {});
  // Renders and encodes. Messages that say what the model said are given in the model's own words
  // and tokens, unless the operator turned that off. In a conversation with tools they also keep
  // reasoning that the template would drop, so that nothing after it has to be computed again; but
  // not if the prompt only fits without it. `rows` stand for texts of the conversation; unless all
  // are pictures, the model's own words are not used. `row_width`: values per embedding in `rows`;
  // 0: the model's.
  StatusOr<KnownPrompt> Make(std::string_view domain, ChatRequest chat,
                             std::vector<EmbeddedRows> rows = {}, int64_t row_width = 0);

  // `text`, which Encode has encoded and was rendered from `chat`, is going to be submitted.
  PromptRecord Track(std::string_view domain, std::string text, const ChatRequest& chat,
                     ClientList list);
  // The model continued the prompt with `reply`.
  void Remember(std::string_view domain, const PromptRecord& record,
                std::span<const int32_t> prompt_tokens, std::span<const int32_t> reply);
  // Remembers replies to `prompt`, whose text must still be there. Empty if it is not to be done.
  std::function<void(SaidReply)> RecorderOf(std::string_view domain, const std::string& session,
                                            const KnownPrompt& prompt);
  // What the model said in recent conversations.
  ReplyMemory& replies() { return replies_; }

 private:
  // Encodes the rendered text. Returns the prompt's length.
  StatusOr<int64_t> SetTokens(std::string_view domain, std::vector<EmbeddedRows> rows,
                              int64_t row_width, KnownPrompt* known);

  const std::shared_ptr<const Model> model_;
  const std::shared_ptr<const ChatFormat> chat_;
  const bool restore_reasoning_;
  PromptMemory prompts_;
  ReplyMemory replies_;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_MAKER_H_
