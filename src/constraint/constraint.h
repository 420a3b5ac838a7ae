// What a text must be, byte by byte: a JSON Schema, a regular expression, a grammar, a choice.
//
// A Constraint is compiled once for a vocabulary and never changes as far as its users see; any
// number of threads may share it. (Inside, the automata it is made of are built as far as they
// are walked, under a lock, and thrown away when they exceed their memory.) A ConstraintState is
// one answer's way through it: small, to be copied where an answer is forked, one thread at a
// time. Whatever a state allows can be completed; what it does not allow cannot.
//
// Compiling is bounded in work and memory. What cannot be enforced exactly is refused with
// kInvalidArgument or kUnimplemented and a sentence that names the keyword and where it stands;
// what takes too much with kResourceExhausted.
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
  // A grammar as llama-server takes it, where `root` is where it begins; or as Lark does, `start`.
  static StatusOr<std::shared_ptr<const Constraint>> FromGrammar(
      std::string_view grammar, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // One of these texts.
  static StatusOr<std::shared_ptr<const Constraint>> Choice(
      std::span<const std::string> texts, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);
  // A text made of parts, control tokens among them; see structure.h.
  static StatusOr<std::shared_ptr<const Constraint>> Structured(
      const Structure& structure, const ConstraintOptions& options,
      std::shared_ptr<const TokenTable> tokens);

  ~Constraint();

  // The beginning of an answer.
  ConstraintState Begin() const;
  // The state that ConstraintState::Serialize wrote, of an equal constraint and vocabulary.
  StatusOr<ConstraintState> Restore(std::string_view serialized) const;

  const TokenTable& tokens() const { return *tokens_; }
  // What it takes by now, the token table aside. Waits for nobody.
  int64_t bytes() const;
  int64_t least_bytes() const;  // without its automata
  // For caches: what its automata may take, answers that are long aside, before they are thrown
  // away, if that is less than its options say; and to throw them away now.
  void SetShare(int64_t bytes) const;
  void GiveBack() const;
  // Steps of work that it took so far.
  int64_t work() const;

 private:
  friend class ConstraintState;
  // `name`, for messages, is a literal.
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
  std::unique_ptr<ConstraintWalker> walker_;  // has a lock of its own
};

class ConstraintState {
 public:
  // Takes a token. False, and nothing changes, where the constraint does not allow it. A token
  // that ends answers is allowed where the text may end; nothing is allowed behind it.
  bool Advance(TokenId token);
  // Takes text that came without tokens; all of it or nothing. A control token that is written
  // out is taken for the token where that may come, and for text elsewhere.
  bool AdvanceText(std::string_view text);
  // How many bytes of `text` could come next.
  size_t AllowedPrefix(std::string_view text) const;
  // Takes back the last `count` tokens (texts of AdvanceText count as one).
  // REQUIRES: count <= length().
  void Rollback(size_t count);

  // Bit `id % 32` of word `id / 32`: whether token `id` may come next.
  // REQUIRES: mask.size() == tokens().mask_words().
  void FillMask(std::span<uint32_t> mask) const;
  // The text that must come next, whatever is chosen: to be taken without asking the model. At
  // most `most` bytes; empty where there is a choice. A control token ends it.
  std::string ForcedText(size_t most) const;
  // INVALID_ARGUMENT with the limit that was met, if a limit is why a mask allowed nothing or a
  // token was not taken: the constraint itself might have allowed it.
  Status LimitMet() const;
  // The text may end here.
  bool CanEnd() const;
  // It ended, or must end here.
  bool IsComplete() const;

  const Constraint& constraint() const { return *constraint_; }
  // Tokens and texts that were taken.
  size_t length() const { return steps_.size(); }
  // What was taken, control tokens written out.
  std::string text() const;
  // For a session that is parked.
  std::string Serialize() const;

 private:
  friend class Constraint;
  struct Step {
    int32_t state = 0;  // behind it; valid in the walker's generation `generation_`
    uint32_t bytes = 0;
    int64_t spent = 0;  // what the text up to here takes, in the machine's steps
  };
  enum class Limit : uint8_t { kNone, kTextWork, kMaskWork, kMemory };
  explicit ConstraintState(std::shared_ptr<const Constraint> constraint);
  int64_t Spent() const { return steps_.empty() ? 0 : steps_.back().spent; }
  bool IsTooMuch(int64_t steps, size_t bytes) const;
  int32_t Current() const { return steps_.empty() ? start_ : steps_.back().state; }
  bool AdvanceBytes(std::string_view bytes);
  // How far `text` can be read, control tokens written out; what is read, and where it leads.
  size_t Read(std::string_view text, std::string* bytes, int32_t* state) const;
  // Walks the text again when the automata were thrown away since.
  void Refresh() const;
  void WalkAgain() const;

  std::shared_ptr<const Constraint> constraint_;
  std::string text_;  // control tokens as TokenTable has them
  mutable std::vector<Step> steps_;
  mutable int32_t start_ = 0;
  mutable uint64_t generation_ = 0;
  mutable Limit limit_met_ = Limit::kNone;
  bool ended_ = false;  // by a token that ends answers, the last of steps_
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_CONSTRAINT_H_
