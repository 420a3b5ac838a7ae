// From a JSON Schema to rules.
#ifndef WEFT_CONSTRAINT_SCHEMA_COMPILER_H_
#define WEFT_CONSTRAINT_SCHEMA_COMPILER_H_

#include <string_view>

#include "base/status.h"
#include "constraint/constraint.h"
#include "constraint/grammar.h"

namespace weft::constraint {

// Fills and finishes `grammar` with what writes exactly the values that satisfy the schema, in
// the layout of `options`. What cannot be enforced exactly is an error that names it.
Status CompileSchema(std::string_view schema, const ConstraintOptions& options, Grammar* grammar);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_COMPILER_H_
