// Parses templates.
#ifndef WEFT_JINJA_PARSER_H_
#define WEFT_JINJA_PARSER_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "jinja/ast.h"

namespace weft::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{512} << 10;

// Parses `source`. Errors name line and column and what was expected; nesting and size are bounded.
// References to other files (include, import, extends) are refused.
StatusOr<std::shared_ptr<const Program>> ParseProgram(std::string source);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_PARSER_H_
