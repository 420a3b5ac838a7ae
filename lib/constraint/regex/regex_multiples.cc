// Decimal numbers that are multiples of a number.
#include <algorithm>
#include <numeric>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

constexpr int32_t kBeforePoint = -1;
constexpr int64_t kMaxModulusDigits = 18;

}  // namespace

// Whether the number may end here.
bool RegexPool::IsMultiple(const Form& n) const {
  const Multiple& multiple = multiples_[static_cast<size_t>(n.a)];
  int64_t remainder = n.b | static_cast<int64_t>(n.c) << 31;
  for (int32_t i = std::max(n.d, 0); i < multiple.decimals; ++i) {
    remainder = static_cast<int64_t>(static_cast<__int128>(remainder) * 10 % multiple.modulus);
  }
  return n.d != 0 && remainder == 0;
}

// Before the point, the hint follows the fewest digits that lead to a multiple.
int64_t RegexPool::EstimateMultiple(Node* n) const {
  if (n->d != kBeforePoint) return 1;
  const Multiple& multiple = multiples_[static_cast<size_t>(n->a)];
  int64_t modulus = multiple.modulus;
  for (int32_t i = 0; i < multiple.decimals; ++i) modulus /= std::gcd(modulus, int64_t{10});
  const int64_t remainder = n->b | static_cast<int64_t>(n->c) << 31;
  __int128 scale = 1;
  for (int64_t digits = 1; digits <= kMaxModulusDigits; ++digits) {
    scale *= 10;
    const __int128 missing = (modulus - remainder % modulus * scale % modulus) % modulus;
    if (missing >= scale) continue;
    n->hint = static_cast<int32_t>('0' + missing / (scale / 10));
    return multiple.decimals > 0 ? std::min<int64_t>(digits, 2) : digits;
  }
  return 1;
}

RegexId RegexPool::Multiples(const Multiple& multiple) {
  const auto known = std::ranges::find(multiples_, multiple);
  const auto index = static_cast<int32_t>(known - multiples_.begin());
  if (known == multiples_.end()) multiples_.push_back(multiple);
  return MultipleState(index, 0, kBeforePoint);
}

RegexId RegexPool::MultipleState(int32_t multiple, int64_t remainder, int32_t digits) {
  // Before the point, some digits always lead to a multiple. After it only a fixed number of digits
  // counts, and these must complete the multiple.
  const Multiple& m = multiples_[static_cast<size_t>(multiple)];
  if (digits != kBeforePoint) {
    __int128 scale = 1;
    for (int32_t i = digits; i < m.decimals; ++i) scale *= 10;
    const __int128 over = remainder * scale % m.modulus;
    if (over != 0 && m.modulus - over >= scale) return kNothing;
  }
  return Intern({.kind = Kind::kMultiple,
                 .a = multiple,
                 .b = static_cast<int32_t>(remainder & 0x7FFFFFFF),
                 .c = static_cast<int32_t>(remainder >> 31),
                 .d = digits});
}

RegexId RegexPool::DeriveMultiple(const Form& n, uint8_t byte) {
  const Multiple multiple = multiples_[static_cast<size_t>(n.a)];
  const int64_t remainder = n.b | static_cast<int64_t>(n.c) << 31;
  if (byte == '.') {
    return n.d == kBeforePoint ? MultipleState(n.a, remainder, 0) : kNothing;
  }
  if (byte < '0' || byte > '9') return kNothing;
  if (n.d == multiple.decimals) {
    if (byte != '0') return kNothing;
    // The last significant digit was read, or there is none: only zeros may follow.
    return remainder == 0 ? Repeat(Byte('0'), 0, kUnlimited) : kNothing;
  }
  const auto next = static_cast<int64_t>((static_cast<__int128>(remainder) * 10 + (byte - '0')) %
                                         multiple.modulus);
  return MultipleState(n.a, next, n.d == kBeforePoint ? kBeforePoint : n.d + 1);
}

}  // namespace weft::constraint
