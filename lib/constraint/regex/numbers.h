// JSON numbers as regular languages: bounds, multiples, equality.
//
// With an exponent, the digits of a number say little about its value. So each language comes in
// two versions. With `exactly` false, it contains every text whose value might have the property.
// With true, it contains only texts that have it, and none with an exponent unless the sign alone
// decides. Use the first to form a complement, and the second everywhere else.
#ifndef WEFT_CONSTRAINT_REGEX_NUMBERS_H_
#define WEFT_CONSTRAINT_REGEX_NUMBERS_H_

#include <optional>
#include <string>
#include <string_view>

#include "constraint/regex/regex.h"

namespace weft::constraint {

struct Decimal {
  bool negative = false;
  std::string whole;     // without leading zeros; empty for 0
  std::string fraction;  // without trailing zeros
  bool IsZero() const { return whole.empty() && fraction.empty(); }
};

// No value if the exponent is extremely large.
std::optional<Decimal> ReadDecimal(std::string_view json_number);

RegexId AnyNumber(RegexPool* pool);
RegexId Integers(RegexPool* pool, bool exactly);
RegexId EqualTo(RegexPool* pool, const Decimal& value, bool exactly);
// value <= x, or value < x if `strictly`.
RegexId AtLeast(RegexPool* pool, const Decimal& value, bool strictly, bool exactly);
RegexId AtMost(RegexPool* pool, const Decimal& value, bool strictly, bool exactly);
// kNothing if the divisor has too many digits or is not positive.
RegexId MultiplesOf(RegexPool* pool, const Decimal& divisor, bool exactly);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_NUMBERS_H_
