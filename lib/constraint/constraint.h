// Constrains a generated text, byte by byte, to a JSON Schema, a regular expression, a grammar or
// one of a list of texts.
//
// A Constraint is compiled once for a vocabulary and looks immutable to its users; any number of
// threads may share it. (Inside, its automata are built lazily, under a lock, and discarded when
// they exceed their memory.) A ConstraintState is one answer's position in it: small, copied when
// an answer forks, used by one thread at a time. Whatever a state allows can be completed; whatever
// it does not allow cannot.
//
// Compiling is bounded in work and memory. A constraint that cannot be enforced exactly is refused
// with kInvalidArgument or kUnimplemented and a sentence that names the keyword and its place; one
// that takes too much, with kResourceExhausted.
#ifndef WEFT_CONSTRAINT_CONSTRAINT_H_
#define WEFT_CONSTRAINT_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "constraint/schema/options.h"
#include "constraint/structure.h"
#include "constraint/token_table.h"

namespace weft::constraint {

class ConstraintState;
class ConstraintWalker;
class Grammar;

class Constraint : public std::enable_shared_from_this<Constraint> {
 public:
  static StatusOr<std::shared_ptr<const Constraint>> JsonSchema(
      std::string_view schema, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // The whole text must match.
  static StatusOr<std::shared_ptr<const Constraint>> Regex(
      std::string_view pattern, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // A grammar in llama-server's notation, which starts at `root`, or in Lark's, which starts at
  // `start`.
  static StatusOr<std::shared_ptr<const Constraint>> FromGrammar(
      std::string_view grammar, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // Exactly one of these texts.
  static StatusOr<std::shared_ptr<const Constraint>> Choice(
      std::span<const std::string> texts, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // A text made of parts, which may be control tokens; see structure.h.
  static StatusOr<std::shared_ptr<const Constraint>> Structured(
      const Structure& structure, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);

  ~Constraint();

  // The state at the start of an answer.
  ConstraintState Begin() const;
  // Reads a state that ConstraintState::Serialize wrote for an equal constraint and vocabulary.
  StatusOr<ConstraintState> Restore(std::string_view serialized) const;

  const TokenTable& tokens() const { return *tokens_; }
  // Current memory, without the token table. Does not take the lock.
  int64_t bytes() const;
  int64_t min_bytes() const;  // without its automata
  // For caches. SetShare limits the memory of the automata, if that is less than the limit in the
  // options; the text of long answers does not count. GiveBack discards the automata now.
  void SetShare(int64_t bytes) const;
  void GiveBack() const;
  // Steps of work done so far.
  int64_t work() const;

 private:
  friend class ConstraintState;
  // `name` is a literal, used in messages.
  Constraint(const char* name, std::unique_ptr<const Grammar> grammar,
             const ConstraintOptions& options, std::shared_ptr<const TokenTable> tokens);
  static StatusOr<std::shared_ptr<const Constraint>> Make(const char* name,
                                                          std::unique_ptr<const Grammar> grammar,
                                                          const ConstraintOptions& options,
                                                          std::shared_ptr<const TokenTable> tokens);

  // A control token that the constraint names.
  struct Control {
    std::string text, bytes;
  };

  const char* const name_;
  std::shared_ptr<const TokenTable> tokens_;
  std::vector<Control> controls_;
  std::unique_ptr<ConstraintWalker> walker_;  // has its own lock
};

class ConstraintState {
 public:
  // Takes a token. If the constraint does not allow it, returns false and changes nothing. A token
  // that ends answers is allowed wherever the text may end; nothing is allowed after it.
  bool Advance(TokenId token);
  // Takes text that has no tokens yet: all of it or nothing. A control token that is written out
  // counts as the token wherever the token is allowed, and as text elsewhere.
  bool AdvanceText(std::string_view text);
  // The length of the longest allowed prefix of `text`, in bytes.
  size_t AllowedPrefix(std::string_view text) const;
  // Undoes the last `count` tokens (one call of AdvanceText counts as one).
  // REQUIRES: count <= length().
  void Rollback(size_t count);

  // Sets bit `id % 32` of word `id / 32` if token `id` may come next.
  // REQUIRES: mask.size() == tokens().mask_words().
  void FillMask(std::span<uint32_t> mask) const;
  // The only possible continuation, at most `most` bytes of it: the caller can take it without
  // running the model. Empty if there is a choice. Stops before a control token.
  std::string ForcedText(size_t most) const;
  // If a limit is the reason why a mask was empty or a token was refused, INVALID_ARGUMENT with
  // that limit: the constraint itself might have allowed the token.
  Status LimitMet() const;
  // Whether the text may end here.
  bool CanEnd() const;
  // Whether the text has ended, or can only end here.
  bool IsComplete() const;

  const Constraint& constraint() const { return *constraint_; }
  // The number of tokens and texts taken.
  size_t length() const { return steps_.size(); }
  // The text taken so far, with control tokens written out.
  std::string text() const;
  // For parking a session.
  std::string Serialize() const;

 private:
  friend class Constraint;
  struct Step {
    int32_t state = 0;  // state after it; valid in the walker's generation `generation_`
    uint32_t bytes = 0;
    int64_t spent = 0;  // machine steps for the text up to here
  };
  enum class Limit : uint8_t { kNone, kTextWork, kMaskWork, kMemory };
  explicit ConstraintState(std::shared_ptr<const Constraint> constraint);
  int64_t Spent() const { return steps_.empty() ? 0 : steps_.back().spent; }
  bool IsTooMuch(int64_t steps, size_t bytes) const;
  int32_t Current() const { return steps_.empty() ? start_ : steps_.back().state; }
  bool AdvanceBytes(std::string_view bytes);
  // The number of bytes of `text` that can be read. `bytes` gets them, with control tokens encoded,
  // and `state` the state after them.
  size_t Read(std::string_view text, std::string* bytes, int32_t* state) const;
  // Walks the text again if the automata were discarded in the meantime.
  void Refresh() const;
  void WalkAgain() const;

  std::shared_ptr<const Constraint> constraint_;
  std::string text_;  // control tokens are encoded as in TokenTable
  mutable std::vector<Step> steps_;
  mutable int32_t start_ = 0;
  mutable uint64_t generation_ = 0;
  mutable Limit limit_met_ = Limit::kNone;
  bool ended_ = false;  // by a token that ends answers, the last of steps_
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_H_
