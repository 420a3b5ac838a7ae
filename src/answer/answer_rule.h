// The required form of an answer, and under which name it was asked for.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_ANSWER_RULE_H_
#define WEFT_ANSWER_ANSWER_RULE_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "constraint/constraint.h"
#include "weft/constraint.h"
#include "weft/model.h"

namespace weft::serve {

struct AnswerRule {
  ConstraintSpec spec;
  std::string field;  // the request field it came from, for errors
};

// The state of an answer that continues after `begun`. Errors name the rule's field.
StatusOr<constraint::ConstraintState> BeginAnswer(const Model& model, const AnswerRule& rule,
                                                  std::string_view begun, std::string_view tenant);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ANSWER_RULE_H_
