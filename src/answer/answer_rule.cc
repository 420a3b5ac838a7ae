#include "answer/answer_rule.h"

#include "answer/error_details.h"
#include "answer/masks/constraint_mask.h"
#include "base/strings.h"

namespace weft::serve {

StatusOr<constraint::ConstraintState> BeginAnswer(const Model& model, const AnswerRule& rule,
                                                  std::string_view begun, std::string_view tenant) {
  auto compiled = CompileConstraint(model, rule.spec, tenant);
  if (!compiled.ok()) {
    // Sending it again would fail again.
    return WithCode(
        WithParam(InvalidArgument(rule.field, ": ", Message(compiled.status())), rule.field),
        "invalid_value");
  }
  constraint::ConstraintState state = (*compiled)->Begin();
  if (!begun.empty() && !state.AdvanceText(begun)) {
    return WithParam(
        InvalidArgument("the begun answer cannot be continued to match what ", rule.field,
                        " requires, from byte ", state.AllowedPrefix(begun), " on"),
        "messages");
  }
  return state;
}

}  // namespace weft::serve
