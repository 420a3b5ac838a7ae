// What may come next in a reply: the mask of a turn's choice.
//
// A thought that has become too long is ended: the tokens of the mark that ends it are the only
// ones that may come, and the answer goes on behind it. A reply that has a form, its thought
// included, is held to it from its first token.
//
// One per choice of a turn; used by the engine's thread.
#ifndef WEFT_HOST_REPLY_MASK_H_
#define WEFT_HOST_REPLY_MASK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "constraint/constraint.h"
#include "engine/constraint_mask.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

// Whether the text of a prompt ends within a thought.
bool EndsInThought(std::string_view prompt, const ThoughtMarks& marks);

struct ReplyRules {
  // Empty ones: the model does not think, or nobody asks how long.
  ThoughtMarks marks;
  // The prompt ends within a thought, whose first tokens come next.
  bool thinks_already = false;
  int64_t most_thought_tokens = -1;                  // -1: no limit
  std::optional<constraint::ConstraintState> reply;  // where it begins, if it has a form

  bool restricts() const { return reply || (most_thought_tokens >= 0 && !marks.open.empty()); }
};

// What a reply in the model's own format may be: a thought where there may be one, then calls of
// `tools` as `policy` wants, or what `answer` asks for (null: none). From the model's cache.
StatusOr<std::shared_ptr<const constraint::Constraint>> CompileReply(
    const Model& model, const ChatFormat& chat, const nlohmann::ordered_json& tools,
    CallPolicy policy, const ConstraintSpec* answer);

// The mask of a reply to a prompt that is there as text. `chat`: null where the model has no
// format. Null where there is nothing to restrict.
StatusOr<TokenMaskFactory> MaskOfReply(const Model& model, const ChatFormat* chat,
                                       std::string_view prompt, int64_t most_thought_tokens,
                                       const std::optional<ConstraintSpec>& answer);

// Null where there is nothing to restrict.
TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules);

class ReplyMask : public TokenMask {
 public:
  ReplyMask(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules);

  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override;
  std::vector<int32_t> Forced(std::span<const int32_t> generated) override;

 private:
  enum class Stage {
    kBefore,    // the reply may still begin with a thought
    kThinking,  //
    kEnding,    // the mark is being said
    kAnswer,
  };

  void Follow(std::span<const int32_t> generated);
  void Look(int32_t token);
  void BeginEnding(std::span<const int32_t> generated);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ThoughtMarks marks_;
  const int64_t most_tokens_;
  Stage stage_;
  std::string text_;       // the reply's first, then the thought's last
  int64_t n_thought_ = 0;  // tokens within it
  std::vector<int32_t> ending_;
  size_t n_ending_ = 0;  // of these, said
  size_t n_seen_ = 0;
  std::unique_ptr<ConstraintMask> reply_;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_REPLY_MASK_H_
