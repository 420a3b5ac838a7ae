#include "constraint/regex/numbers.h"

#include <algorithm>
#include <vector>

#include "base/strings.h"

namespace weft::constraint {
namespace {

constexpr int64_t kMaxExponent = 400;

// The building blocks of number expressions.
struct NumberParts {
  explicit NumberParts(RegexPool* p) : pool(p) {
    digit = pool->Bytes(ByteSet::Range('0', '9'));
    digits = pool->Repeat(digit, 1, kUnlimited);
    whole = pool->Or({pool->Byte('0'), pool->Concat(pool->Bytes(ByteSet::Range('1', '9')),
                                                    pool->Repeat(digit, 0, kUnlimited))});
    any_fraction = pool->Optional(pool->Concat(pool->Byte('.'), digits));
    zeros = pool->Repeat(pool->Byte('0'), 0, kUnlimited);
    zero_fraction = pool->Optional(pool->Concat({pool->Literal(".0"), zeros}));
    magnitude = pool->Concat(whole, any_fraction);
    sign = pool->Optional(pool->Byte('-'));
    exponent =
        pool->Concat({pool->Bytes(ByteSet::Of('e') | ByteSet::Of('E')),
                      pool->Optional(pool->Bytes(ByteSet::Of('+') | ByteSet::Of('-'))), digits});
    zero = pool->Concat(pool->Byte('0'), zero_fraction);
  }
  RegexId WithExponent() { return pool->Concat({sign, magnitude, exponent}); }

  RegexPool* pool;
  RegexId digit, digits, whole, any_fraction, zeros, zero_fraction, magnitude, sign, exponent, zero;
};

// The magnitudes (no sign, no exponent) that equal `value`'s.
RegexId MagnitudeEqual(NumberParts* n, const Decimal& value) {
  RegexPool* pool = n->pool;
  const RegexId whole = pool->Literal(value.whole.empty() ? "0" : value.whole);
  if (value.fraction.empty()) return pool->Concat(whole, n->zero_fraction);
  return pool->Concat({whole, pool->Byte('.'), pool->Literal(value.fraction), n->zeros});
}

RegexId DigitAbove(RegexPool* pool, char digit) {
  return digit == '9' ? kNothing : pool->Bytes(ByteSet::Range(digit + 1, '9'));
}

// The magnitudes above `value`'s.
RegexId MagnitudeAbove(NumberParts* n, const Decimal& value) {
  RegexPool* pool = n->pool;
  std::vector<RegexId> parts;
  const std::string whole = value.whole.empty() ? "0" : value.whole;
  const auto size = static_cast<int32_t>(whole.size());
  // The integer part has more digits.
  parts.push_back(pool->Concat({pool->Bytes(ByteSet::Range('1', '9')),
                                pool->Repeat(n->digit, size, kUnlimited), n->any_fraction}));
  // The integer part is as long, and its first different digit is greater.
  for (int32_t i = 0; i < size; ++i) {
    parts.push_back(
        pool->Concat({pool->Literal(whole.substr(0, static_cast<size_t>(i))),
                      DigitAbove(pool, whole[static_cast<size_t>(i)]),
                      pool->Repeat(n->digit, size - i - 1, size - i - 1), n->any_fraction}));
  }
  // The integer parts are equal.
  std::vector<RegexId> fractions;
  const RegexId more = pool->Repeat(n->digit, 0, kUnlimited);
  for (size_t i = 0; i < value.fraction.size(); ++i) {
    fractions.push_back(pool->Concat(
        {pool->Literal(value.fraction.substr(0, i)), DigitAbove(pool, value.fraction[i]), more}));
  }
  const RegexId positive = pool->Concat({n->zeros, pool->Bytes(ByteSet::Range('1', '9')), more});
  fractions.push_back(pool->Concat(pool->Literal(value.fraction), positive));
  parts.push_back(
      pool->Concat({pool->Literal(whole), pool->Byte('.'), pool->Or(std::move(fractions))}));
  return pool->Or(std::move(parts));
}

RegexId MagnitudeBelow(NumberParts* n, const Decimal& value, bool strictly) {
  std::vector<RegexId> parts{n->magnitude, n->pool->Not(MagnitudeAbove(n, value))};
  if (strictly) parts.push_back(n->pool->Not(MagnitudeEqual(n, value)));
  return n->pool->And(parts);
}

RegexId MagnitudeFrom(NumberParts* n, const Decimal& value, bool strictly) {
  const RegexId above = MagnitudeAbove(n, value);
  return strictly ? above : n->pool->Or({above, MagnitudeEqual(n, value)});
}

// The texts of all numbers x >= value, or x <= value if not `at_least`; without x == value if
// `strictly`.
RegexId Side(RegexPool* pool, const Decimal& value, bool strictly, bool exactly, bool at_least) {
  NumberParts n(pool);
  const RegexId minus = pool->Byte('-');
  const RegexId plus_sign = at_least ? kEmpty : minus, minus_sign = at_least ? minus : kEmpty;
  std::vector<RegexId> parts;
  const bool beyond = value.IsZero() || value.negative != at_least;  // zero is out of range
  if (value.IsZero()) {
    const RegexId zeros = pool->Concat({n.zero, pool->Optional(n.exponent)});
    RegexId positive = pool->Concat(n.magnitude, pool->Optional(n.exponent));
    positive = pool->AndNot(positive, zeros);
    parts.push_back(pool->Concat(plus_sign, positive));
    if (!strictly) parts.push_back(pool->Concat(n.sign, zeros));
    return pool->Or(std::move(parts));
  }
  if (beyond) {
    parts.push_back(pool->Concat(plus_sign, MagnitudeFrom(&n, value, strictly)));
  } else {
    parts.push_back(pool->Concat(plus_sign, n.magnitude));
    parts.push_back(pool->Concat(minus_sign, MagnitudeBelow(&n, value, strictly)));
    parts.push_back(pool->Concat(n.sign, n.zero));
  }
  if (!exactly) parts.push_back(n.WithExponent());
  return pool->Or(std::move(parts));
}

}  // namespace

std::optional<Decimal> ReadDecimal(std::string_view text) {
  Decimal value;
  if (!text.empty() && text[0] == '-') {
    value.negative = true;
    text.remove_prefix(1);
  }
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
    if (!ParseInt64(digits, &exponent) || exponent > kMaxExponent || exponent < -kMaxExponent) {
      return std::nullopt;
    }
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string whole(text.substr(0, point));
  std::string fraction(point < text.size() ? text.substr(point + 1) : "");
  for (; exponent > 0; --exponent) {
    whole.push_back(fraction.empty() ? '0' : fraction[0]);
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  const size_t last = fraction.find_last_not_of('0');
  fraction.resize(last == std::string::npos ? 0 : last + 1);
  value.whole = std::move(whole);
  value.fraction = std::move(fraction);
  if (value.IsZero()) value.negative = false;
  return value;
}

RegexId AnyNumber(RegexPool* pool) {
  NumberParts n(pool);
  return pool->Concat({n.sign, n.magnitude, pool->Optional(n.exponent)});
}

RegexId Integers(RegexPool* pool, bool exactly) {
  NumberParts n(pool);
  const RegexId plain = pool->Concat(n.sign, n.whole);
  return exactly ? plain : pool->Or({pool->Concat(plain, n.zero_fraction), n.WithExponent()});
}

RegexId EqualTo(RegexPool* pool, const Decimal& value, bool exactly) {
  NumberParts n(pool);
  const RegexId sign = value.IsZero() ? n.sign : value.negative ? pool->Byte('-') : kEmpty;
  const RegexId equal = pool->Concat(sign, MagnitudeEqual(&n, value));
  return exactly ? equal : pool->Or({equal, n.WithExponent()});
}

RegexId AtLeast(RegexPool* pool, const Decimal& value, bool strictly, bool exactly) {
  return Side(pool, value, strictly, exactly, true);
}

RegexId AtMost(RegexPool* pool, const Decimal& value, bool strictly, bool exactly) {
  return Side(pool, value, strictly, exactly, false);
}

RegexId MultiplesOf(RegexPool* pool, const Decimal& divisor, bool exactly) {
  Multiple multiple{.decimals = static_cast<int32_t>(divisor.fraction.size())};
  const std::string digits = divisor.whole + divisor.fraction;
  if (divisor.negative || divisor.IsZero() || digits.size() > 17 ||
      !ParseInt64(digits, &multiple.modulus) || multiple.decimals > 17) {
    return kNothing;
  }
  NumberParts n(pool);
  const RegexId form = pool->Concat(n.sign, n.magnitude);
  const RegexId exact = pool->And({form, pool->Concat(n.sign, pool->Multiples(multiple))});
  return exactly ? exact : pool->Or({exact, n.WithExponent()});
}

}  // namespace weft::constraint
