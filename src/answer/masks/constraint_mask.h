// Adapts a constraint to the token mask of a turn's choice.
#ifndef WEFT_ANSWER_MASKS_CONSTRAINT_MASK_H_
#define WEFT_ANSWER_MASKS_CONSTRAINT_MASK_H_

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
#include "model/tokenizer/tokenizer.h"
#include "weft/constraint.h"
#include "weft/options.h"

namespace weft {

// Masks for choices that all start from `state`.
TokenMaskFactory MaskOf(std::shared_ptr<const Tokenizer> tokenizer,
                        constraint::ConstraintState state);

// Gets the constraint that `spec` describes from the model's cache, which keeps it for the tenant.
StatusOr<std::shared_ptr<const constraint::Constraint>> CompileConstraint(
    const Model& model, const ConstraintSpec& spec, std::string_view tenant = {});

// What a constraint is compiled from.
constraint::ConstraintOptions OptionsOf(const ConstraintSpec& spec);
constraint::Structure StructureOf(const ConstraintSpec& spec);

// Identifies the spec in caches.
std::string KeyOf(const ConstraintSpec& spec);

class ConstraintMask : public TokenMask {
 public:
  // `state` is how far the answer has got.
  ConstraintMask(std::shared_ptr<const Tokenizer> tokenizer, constraint::ConstraintState state)
      : tokenizer_(std::move(tokenizer)), state_(std::move(state)) {}

  void Apply(std::span<const int32_t> generated, std::span<uint32_t> allowed) override;
  // The text that must come next, encoded, without its last token: what follows may change how the
  // text ends, so the model chooses that one.
  std::vector<int32_t> Forced(std::span<const int32_t> generated) override;
  absl::Status Problem() const override { return state_.LimitMet(); }
  // Whether the tokens `next` may follow, in order.
  bool Allows(std::span<const int32_t> generated, std::span<const int32_t> next);

 private:
  void Follow(std::span<const int32_t> generated);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  constraint::ConstraintState state_;
  size_t n_seen_ = 0;
  bool lost_ = false;  // the state could not follow; from then on nothing is allowed
};

}  // namespace weft

#endif  // WEFT_ANSWER_MASKS_CONSTRAINT_MASK_H_
