// From a JSON Schema to rules.
#ifndef WEFT_CONSTRAINT_SCHEMA_COMPILER_H_
#define WEFT_CONSTRAINT_SCHEMA_COMPILER_H_

#include <string_view>

#include "base/status.h"
#include "constraint/constraint.h"
#include "constraint/grammar.h"
#include "constraint/structure.h"

namespace weft::constraint {

// Fills and finishes `grammar` with what writes exactly the values that satisfy the schema, in
// the layout of `options`. What cannot be enforced exactly is an error that names it.
Status CompileSchema(std::string_view schema, const ConstraintOptions& options, Grammar* grammar);

// For structures, which finish the grammar themselves: the rule of the values of a part of a
// schema.
StatusOr<RuleId> AddSchema(const SchemaPart& part, const ValueStyle& style, ValueKinds kinds,
                           const ConstraintOptions& options, Grammar* grammar);
// Its strings, as they read.
StatusOr<RegexId> StringsOfSchema(const SchemaPart& part, const ConstraintOptions& options,
                                  Grammar* grammar);
JsonLayout LayoutOf(RegexPool* pool, WhiteSpace white_space);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_COMPILER_H_
