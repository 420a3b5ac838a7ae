// JSON numbers as regular languages: bounds, multiples, equality.
//
// A number can be written with an exponent, and then its digits say little about its value. So
// each language comes in two: `exactly` false gives every text whose value might have the property,
// true gives only texts that have it, none of them with an exponent but where the sign decides.
// Who forms a complement takes the first, everybody else the second.
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

// Nothing where the exponent is out of all reason.
std::optional<Decimal> ReadDecimal(std::string_view json_number);

RegexId AnyNumber(RegexPool* pool);
RegexId Integers(RegexPool* pool, bool exactly);
RegexId EqualTo(RegexPool* pool, const Decimal& value, bool exactly);
// value <= x, or value < x where `strictly`.
RegexId AtLeast(RegexPool* pool, const Decimal& value, bool strictly, bool exactly);
RegexId AtMost(RegexPool* pool, const Decimal& value, bool strictly, bool exactly);
// kNothing where the divisor has too many digits, or is not positive.
RegexId MultiplesOf(RegexPool* pool, const Decimal& divisor, bool exactly);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_NUMBERS_H_
