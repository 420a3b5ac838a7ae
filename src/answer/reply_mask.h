// Which tokens may come next in a reply: the token mask of a turn's choice.
//
// A thought that becomes too long is ended by forcing its last words and the tokens of its end
// mark; the answer follows. A reply with a required form, including its thought, is held to it from
// its first token.
//
// One per choice of a turn; used by the engine's thread.
#ifndef WEFT_ANSWER_REPLY_MASK_H_
#define WEFT_ANSWER_REPLY_MASK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_format.h"
#include "answer/masks/constraint_mask.h"
#include "answer/thinking.h"
#include "constraint/constraint.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::serve {

struct AnswerRule;

struct ReplyRules {
  // Empty: the model does not think, or there is no limit on thinking.
  ThoughtMarks marks;
  // The prompt ends within a thought, which the reply continues.
  bool thinks_already = false;
  ThoughtLimit thought;
  // What ends a call in the model's own format. A thought may end with one, and the reply with it.
  // Empty: it may not.
  std::string call_end;
  std::optional<constraint::ConstraintState> reply;  // its initial state, if it has a required form

  bool restricts() const { return reply || (thought.tokens >= 0 && !marks.open.empty()); }
};

// The allowed replies in the model's own format: a thought where allowed, then calls of `tools` as
// `policy` requires, or the form in `answer` (null: none). From the model's cache, which keeps it
// for the tenant.
StatusOr<std::shared_ptr<const constraint::Constraint>> CompileReply(
    const Model& model, const ChatFormat& chat, const ToolList& tools, CallPolicy policy,
    const ConstraintSpec* answer, std::string_view tenant = {});

// The state of an answer that continues after `begun`. Errors name the rule's field.
StatusOr<constraint::ConstraintState> BeginAnswer(const Model& model, const AnswerRule& rule,
                                                  std::string_view begun, std::string_view tenant);

// Null if there is nothing to restrict.
TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules);

class ReplyMask : public TokenMask {
 public:
  ReplyMask(std::shared_ptr<const Tokenizer> tokenizer, ReplyRules rules);

  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override;
  std::vector<int32_t> Forced(std::span<const int32_t> generated) override;
  absl::Status Problem() const override;

 private:
  enum class Stage {
    kBefore,  // the reply may still begin with a thought
    kThinking,
    kEnding,  // the end mark is being forced
    kAnswer,
  };

  void Follow(std::span<const int32_t> generated);
  void Look(int32_t token);
  bool IsLate() const;
  void BeginEnding(std::span<const int32_t> generated);
  bool EndsWithCall() const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ThoughtMarks marks_;
  const ThoughtLimit limit_;
  const std::string call_end_;
  Stage stage_;
  std::string text_;       // the beginning of the reply, then the end of the thought
  int64_t n_thought_ = 0;  // tokens in the thought
  std::vector<int32_t> ending_;
  size_t n_ending_ = 0;  // how many of them have been taken
  size_t n_seen_ = 0;
  std::unique_ptr<ConstraintMask> reply_;
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_REPLY_MASK_H_
