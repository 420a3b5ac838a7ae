// JSON Schema's string formats as patterns.
#ifndef WEFT_CONSTRAINT_REGEX_FORMATS_H_
#define WEFT_CONSTRAINT_REGEX_FORMATS_H_

#include <string>
#include <string_view>

namespace weft::constraint {

// The pattern of a format. Empty for an unknown name, which is only an annotation. With `surely`,
// the pattern matches only valid strings, but may miss some; otherwise it matches all valid
// strings, and perhaps some others.
const std::string& FormatPattern(std::string_view name, bool surely);
// Formats that are defined but cannot be enforced.
bool IsUnenforceableFormat(std::string_view name);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_FORMATS_H_
