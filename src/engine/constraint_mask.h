// A constraint as the mask of a turn's choice.
#ifndef WEFT_ENGINE_CONSTRAINT_MASK_H_
#define WEFT_ENGINE_CONSTRAINT_MASK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constraint/constraint.h"
#include "constraint/structure.h"
#include "tokenizer/tokenizer.h"
#include "weft/constraint.h"
#include "weft/options.h"

namespace weft {

// Masks of choices that all stand where `state` does.
TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer,
                        constraint::ConstraintState state);

// The constraint that `spec` describes, from the model's cache.
StatusOr<std::shared_ptr<const constraint::Constraint>> CompileConstraint(
    const Model& model, const ConstraintSpec& spec);

// The same for what a constraint is compiled of.
constraint::ConstraintOptions OptionsOf(const ConstraintSpec& spec);
constraint::Structure StructureOf(const ConstraintSpec& spec);

// Says the same as the spec, for caches.
std::string KeyOf(const ConstraintSpec& spec);

class ConstraintMask : public TokenMask {
 public:
  // `state` is where the answer stands.
  ConstraintMask(std::shared_ptr<const Tokenizer> tokenizer, constraint::ConstraintState state)
      : tokenizer_(std::move(tokenizer)), state_(std::move(state)) {}

  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override;
  // The text that must come next, in the tokens of its own encoding, but for the last of them:
  // what follows may change how the text ends, so that one is left to the model.
  std::vector<int32_t> Forced(std::span<const int32_t> generated) override;
  // Whether these tokens may come next, one after the other.
  bool Allows(std::span<const int32_t> generated, std::span<const int32_t> next);

 private:
  void Follow(std::span<const int32_t> generated);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  constraint::ConstraintState state_;
  size_t n_seen_ = 0;
  bool lost_ = false;  // the state could not follow: nothing may come from then on
};

}  // namespace weft

#endif  // WEFT_ENGINE_CONSTRAINT_MASK_H_
