// Constraints in the notation that vLLM, SGLang and XGrammar call structural tags: JSON that
// composes literal texts, JSON values, regular expressions, grammars and free text.
//
//   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<call>"],
//    "tags": [{"begin": "<call>", "content": {"type": "json_schema", "json_schema": {...}},
//              "end": "</call>"}]}}
//
// The older form with "structures" is read, too. Any thread.
#ifndef WEFT_ANSWER_STRUCTURAL_TAG_H_
#define WEFT_ANSWER_STRUCTURAL_TAG_H_

#include <memory>
#include <string_view>

#include "base/status.h"
#include "constraint/constraint.h"
#include "constraint/structure.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/model.h"

namespace weft {

// Texts that are control tokens of the vocabulary stand for them. INVALID_ARGUMENT and
// UNIMPLEMENTED name the place.
StatusOr<constraint::Structure> ReadStructuralTag(std::string_view json,
                                                  const Tokenizer& tokenizer);

// From the model's cache, which keeps it for the tenant.
StatusOr<std::shared_ptr<const constraint::Constraint>> CompileStructuralTag(
    const Model& model, std::string_view json, std::string_view tenant = {});

}  // namespace weft

#endif  // WEFT_ANSWER_STRUCTURAL_TAG_H_
