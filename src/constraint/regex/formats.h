// The formats of strings that JSON Schema names, as patterns.
#ifndef WEFT_CONSTRAINT_REGEX_FORMATS_H_
#define WEFT_CONSTRAINT_REGEX_FORMATS_H_

#include <string>
#include <string_view>

namespace weft::constraint {

// The pattern of a format; empty for a name that is not known, which then is a remark only.
// `surely`: nothing else matches, though some of what the format allows may be missing; otherwise
// all that it allows matches, though some more may.
const std::string& FormatPattern(std::string_view name, bool surely);
// Formats that are defined and cannot be enforced.
bool IsUnenforceableFormat(std::string_view name);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_FORMATS_H_
