// Translates JSON Schemas to grammar rules.
#ifndef WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_H_
#define WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"
#include "constraint/schema/options.h"
#include "constraint/schema/schema_document.h"
#include "constraint/schema/schema_part.h"

namespace weft::constraint {

// Fills and finishes `grammar`, so that it generates exactly the values that satisfy the schema, in
// the layout of `options`. If something cannot be enforced exactly, the error names it.
Status CompileSchema(std::string_view schema, const ConstraintOptions& options, Grammar* grammar);

// Parsed schemas; each is parsed once. The work is charged to a pool.
class SchemaDocuments {
 public:
  // REQUIRES: `text` outlives this object.
  StatusOr<const SchemaDocument*> Get(const SchemaText& text, RegexPool* pool);

 private:
  std::map<const std::string*, std::unique_ptr<const SchemaDocument>> read_;
};

// For structures, which finish the grammar themselves: adds a rule for the values of a part of a
// schema.
StatusOr<RuleId> AddSchema(const SchemaPart& part, const ValueStyle& style, ValueKinds kinds,
                           const ConstraintOptions& options, SchemaDocuments* documents,
                           Grammar* grammar);
// The strings among these values, without quotes and escapes.
StatusOr<RegexId> StringsOfSchema(const SchemaPart& part, const ConstraintOptions& options,
                                  SchemaDocuments* documents, Grammar* grammar);
JsonLayout LayoutOf(RegexPool* pool, WhiteSpace white_space);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_SCHEMA_SCHEMA_COMPILER_H_
