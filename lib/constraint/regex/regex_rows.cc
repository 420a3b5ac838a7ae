// Rows of optional parts, a?b?c?..., and unions of their suffixes.
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

// DropTails compares with at most this many rows of a union.
constexpr size_t kMaxRows = 16;
}  // namespace

// REQUIRES: the sequence's first part is optional.
void RegexPool::LinkOptions(Node* n) {
  Options made{.length = 1, .end = n->b, .jump = n->b};
  const bool plain = IsPlainOption(n->a);
  if (plain) made.plain_end = n->b;
  if (const int32_t behind = node(n->b).options; behind >= 0) {
    const Options rest = options_[static_cast<size_t>(behind)];
    made.length = rest.length + 1;
    made.end = rest.end;
    if (plain && rest.plain_end != kNothing) made.plain_end = rest.plain_end;
    // As in a skip list, a few jumps reach any suffix.
    const int32_t far = OptionsOf(rest.jump);
    if (far > 0) {
      const RegexId farther = options_[static_cast<size_t>(node(rest.jump).options)].jump;
      if (rest.length - far == far - OptionsOf(farther)) made.jump = farther;
    }
  }
  n->options = static_cast<int32_t>(options_.size());
  options_.push_back(made);
  budget_.Spend(0, sizeof(Options));
}

// Whether every derivative of the part is optional, and a subset of the part.
bool RegexPool::IsPlainOption(RegexId id) const {
  const Node& n = node(id);
  if (n.kind == Kind::kRepeat) return n.b == 0 && node(n.a).kind == Kind::kBytes;
  if (n.kind != Kind::kOr || n.b != 2) return false;
  const auto parts = Parts(n);
  const RegexId other = parts[0] == kEmpty ? parts[1] : parts[0];
  return n.nullable && node(other).kind == Kind::kBytes;
}

// Whether `tail` is the rest of `row` after some of its first parts.
bool RegexPool::IsTailOf(RegexId row, RegexId tail) const {
  const int32_t length = OptionsOf(tail);
  while (OptionsOf(row) > length) {
    const RegexId jump = options_[static_cast<size_t>(node(row).options)].jump;
    row = OptionsOf(jump) >= length ? jump : node(row).b;
  }
  return row == tail;
}

// Removes parts of a union that are suffixes of other parts.
void RegexPool::DropTails(std::vector<RegexId>* parts) const {
  struct Row {
    int32_t length;
    RegexId end, id;
  };
  const auto row_of = [&](RegexId id) {
    const int32_t at = node(id).options;
    if (at < 0) return Row{0, id, id};
    const Options& options = options_[static_cast<size_t>(at)];
    return Row{options.length, options.end, id};
  };
  // If there are too many rows, keep the longest.
  std::array<Row, kMaxRows> longest;
  size_t count = 0;
  for (const RegexId part : *parts) {
    if (node(part).options < 0) continue;
    const Row row = row_of(part);
    if (count < kMaxRows) {
      longest[count++] = row;
    } else if (Row* least = &*std::ranges::min_element(longest, {}, &Row::length);
               least->length < row.length) {
      *least = row;
    }
  }
  if (count == 0 || parts->size() == 1) return;
  const std::span rows(longest.data(), count);
  std::erase_if(*parts, [&](RegexId part) {
    const Row tail = row_of(part);
    return std::ranges::any_of(rows, [&](const Row& row) {
      return row.length > tail.length && row.end == tail.end && IsTailOf(row.id, part);
    });
  });
}

// Removes parts of a union that repeat less often than an otherwise equal part: of x{0,3}y and
// x{0,5}y the first.
void RegexPool::DropFewer(std::vector<RegexId>* parts) const {
  struct Counted {
    RegexId what, behind;
    int32_t most;
    RegexId id;
    auto operator<=>(const Counted&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Counted> counted;
  for (const RegexId part : *parts) {
    const Node& n = node(part);
    if (n.kind != Kind::kConcat || node(n.a).kind != Kind::kRepeat || node(n.a).b != 0) continue;
    const int32_t most = node(n.a).c;
    counted.push_back({node(n.a).a, n.b, most == kUnlimited ? INT32_MAX : most, part});
  }
  if (counted.size() < 2) return;
  std::ranges::sort(counted);
  std::vector<RegexId> dropped;
  for (size_t i = 0; i + 1 < counted.size(); ++i) {
    const Counted &one = counted[i], &next = counted[i + 1];
    if (one.what == next.what && one.behind == next.behind && one.id != next.id)
      dropped.push_back(one.id);
  }
  if (dropped.empty()) return;
  std::ranges::sort(dropped);
  std::erase_if(*parts, [&](RegexId part) { return std::ranges::binary_search(dropped, part); });
}

}  // namespace weft::constraint
