#include "constraint/regex/regex.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "constraint/regex/new_node.h"

namespace weft::constraint {
namespace {

// A text to be sorted: its first bytes, compared as a number, usually decide.
struct Sortable {
  explicit Sortable(std::string_view t) : text(t) {
    for (size_t i = 0; i < sizeof(front); ++i) {
      front = front << 8 | (i < t.size() ? static_cast<uint8_t>(t[i]) : 0u);
    }
  }
  bool operator<(const Sortable& other) const {
    return front != other.front ? front < other.front : text < other.text;
  }

  uint64_t front = 0;
  std::string_view text;
};

// Costs of listing texts: one step for each text, and one for this many bytes; searching the list
// later takes one step for this many texts.
constexpr size_t kBytesOfStep = 16;
constexpr int32_t kTextsOfStep = 16;

}  // namespace

RegexPool::RegexPool() {
  Intern({.kind = Kind::kNothing});
  Intern({.kind = Kind::kEmpty, .nullable = true});
  Intern({.kind = Kind::kNot, .a = kNothing});
}

int32_t RegexPool::InternSet(const ByteSet& set) {
  uint64_t hash = 7;
  for (const uint64_t word : set.words) hash = MixHash(hash, word);
  const int32_t found = set_index_.Find(hash, [&](int32_t id) { return Set(id) == set; });
  if (found >= 0) return found;
  const auto id = static_cast<int32_t>(sets_.size());
  sets_.push_back(set);
  set_index_.Add(hash, id);
  budget_.Spend(1, sizeof(ByteSet) + 32);
  return id;
}

bool RegexPool::SameForm(const Form& n, const Form& other, std::span<const int32_t> list) const {
  if (n.kind != other.kind) return false;
  if (IsList(n.kind)) {
    return std::ranges::equal(Parts(n), list);
  }
  if (n.kind == Kind::kLiteral) {
    return n.b == other.b &&
           std::memcmp(texts_.data() + n.a, texts_.data() + other.a, static_cast<size_t>(n.b)) == 0;
  }
  return n.a == other.a && n.b == other.b && n.c == other.c && n.d == other.d;
}

// Equal for equal expressions, in every pool of a constraint.
uint64_t RegexPool::PrintOf(const Form& n, std::span<const int32_t> list) const {
  auto hash = static_cast<uint64_t>(n.kind) + 1;
  switch (n.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return hash;
    case Kind::kBytes:
      for (const uint64_t word : Set(n.a).words) hash = MixHash(hash, word);
      return hash;
    case Kind::kLiteral: {
      const std::string_view all = texts_;
      return MixHash(hash, std::hash<std::string_view>{}(
                               all.substr(static_cast<size_t>(n.a), static_cast<size_t>(n.b))));
    }
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kOnlyOne:
      for (const RegexId part : list) hash = MixHash(hash, Print(part));
      return hash;
    case Kind::kConcat:
      return MixHash(MixHash(hash, Print(n.a)), Print(n.b));
    case Kind::kMultiple:
    case Kind::kTexts:
      hash = MixHash(hash, static_cast<uint64_t>(n.a));
      break;
    case Kind::kNot:
    case Kind::kRepeat:
    case Kind::kRespelled:
    case Kind::kSpelled:
      hash = MixHash(hash, Print(n.a));
      break;
  }
  hash = MixHash(hash, static_cast<uint64_t>(n.b) << 32 | static_cast<uint32_t>(n.c));
  return MixHash(hash, static_cast<uint64_t>(n.d));
}

RegexId RegexPool::Intern(const Form& wanted, std::span<const int32_t> list) {
  // A known expression costs as much as a new one.
  const int64_t steps = 1 + static_cast<int64_t>(list.size()) / 4;
  budget_.CountSteps(steps);
  const uint64_t print = PrintOf(wanted, list);
  const int32_t found = node_index_.Find(
      print, [&](int32_t id) { return SameForm(nodes_[static_cast<size_t>(id)], wanted, list); });
  if (found >= 0) return found;
  if (budget_.exhausted() && nodes_.size() > 3) return kNothing;
  Node made{wanted};
  NewNode(this, &made, list).Complete();
  if (IsList(made.kind)) {
    made.a = static_cast<int32_t>(lists_.size());
    made.b = static_cast<int32_t>(list.size());
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  const auto id = static_cast<RegexId>(nodes_.size());
  nodes_.push_back(made);
  prints_.push_back(print);
  node_index_.Add(print, id);
  budget_.Spend(steps, static_cast<int64_t>(sizeof(Node) + 40 + 4 * list.size()));
  return id;
}

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNothing;
  return Intern({.kind = Kind::kBytes, .a = InternSet(set)});
}

RegexId RegexPool::Literal(std::string_view text) {
  if (text.empty()) return kEmpty;
  if (text.size() == 1) return Byte(static_cast<uint8_t>(text[0]));
  // A literal that came from texts_ itself is a suffix of a known one.
  const bool own = text.data() >= texts_.data() && text.data() < texts_.data() + texts_.size();
  const auto offset = own ? static_cast<size_t>(text.data() - texts_.data()) : texts_.size();
  if (!own) {
    texts_.append(text);
    budget_.Spend(0, static_cast<int64_t>(text.size()));
  }
  return Intern({.kind = Kind::kLiteral,
                 .a = static_cast<int32_t>(offset),
                 .b = static_cast<int32_t>(text.size())});
}

RegexId RegexPool::AnyOf(const std::vector<std::string>& texts) {
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  if (!std::ranges::is_sorted(sorted)) {
    std::vector<Sortable> sortable(sorted.begin(), sorted.end());
    std::sort(sortable.begin(), sortable.end());
    std::ranges::transform(sortable, sorted.begin(), &Sortable::text);
  }
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  if (sorted.size() <= kFewTexts) return AnyOfSorted(sorted, 0);
  const int32_t first = ListTexts(sorted);
  return first < 0 ? kNothing : AnyOfListed(first, static_cast<int32_t>(sorted.size()), 0);
}

// The position of these sorted texts in listed_; negative if a limit is reached.
int32_t RegexPool::ListTexts(std::span<const std::string_view> texts) {
  uint64_t hash = texts.size();
  for (const std::string_view text : texts) {
    hash = MixHash(hash, std::hash<std::string_view>{}(text));
    budget_.Step(1 + static_cast<int64_t>(text.size() / kBytesOfStep));
    if (budget_.exhausted()) return -1;
  }
  const int32_t known = list_index_.Find(hash, [&](int32_t first) {
    const auto begin = static_cast<size_t>(first);
    if (listed_.size() - begin < texts.size()) return false;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (TextAt(listed_[begin + i]) != texts[i]) return false;
    }
    return true;
  });
  if (known >= 0) return known;
  const auto first = static_cast<int32_t>(listed_.size());
  for (const std::string_view text : texts) {
    listed_.push_back({static_cast<int32_t>(texts_.size()), static_cast<int32_t>(text.size())});
    texts_.append(text);
    budget_.Spend(0, static_cast<int64_t>(text.size() + sizeof(TextPlace)));
  }
  list_index_.Add(hash, first);
  return first;
}

// For texts in listed_ that share their first `from` bytes: the language of the remainders. Many
// texts stay a list until a byte is derived.
RegexId RegexPool::AnyOfListed(int32_t first, int32_t count, int32_t from) {
  const std::span<const TextPlace> listed = Listed(first, count);
  if (listed.size() <= kFewTexts) {
    std::array<std::string_view, kFewTexts> texts;
    std::ranges::transform(listed, texts.begin(), [&](const TextPlace& at) { return TextAt(at); });
    return AnyOfSorted(std::span(texts).first(listed.size()), static_cast<size_t>(from));
  }
  budget_.Step(count / kTextsOfStep);
  const std::string_view front = TextAt(listed.front());
  const auto common =
      static_cast<int32_t>(std::ranges::mismatch(front, TextAt(listed.back())).in1 - front.begin());
  const RegexId behind = Intern({.kind = Kind::kTexts, .a = first, .b = count, .c = common});
  return Concat(
      Literal(front.substr(static_cast<size_t>(from), static_cast<size_t>(common - from))), behind);
}

// For texts in listed_ that share their first `from` bytes, starting at `at`: the end of those with
// the same next byte.
// REQUIRES: the text at `at` is longer than `from`.
size_t RegexPool::EndOfAlike(std::span<const TextPlace> listed, size_t at, int32_t from) const {
  const auto next = [&](const TextPlace& place) {
    return static_cast<uint8_t>(
        texts_[static_cast<size_t>(place.offset) + static_cast<size_t>(from)]);
  };
  const auto rest = listed.subspan(at);
  return at + static_cast<size_t>(std::ranges::upper_bound(rest, next(rest.front()), {}, next) -
                                  rest.begin());
}

RegexId RegexPool::DeriveTexts(const Form& n, uint8_t byte) {
  const std::span<const TextPlace> listed = Listed(n.a, n.b);
  for (size_t at = listed.front().length == n.c ? 1 : 0; at < listed.size();) {
    const size_t end = EndOfAlike(listed, at, n.c);
    const auto next = static_cast<uint8_t>(
        texts_[static_cast<size_t>(listed[at].offset) + static_cast<size_t>(n.c)]);
    if (next == byte) {
      return AnyOfListed(n.a + static_cast<int32_t>(at), static_cast<int32_t>(end - at), n.c + 1);
    }
    at = end;
  }
  return kNothing;
}

// For distinct texts that share their first `from` bytes: the language of the remainders.
RegexId RegexPool::AnyOfSorted(std::span<const std::string_view> texts, size_t from) {
  if (texts.empty() || budget_.exhausted()) return kNothing;
  const std::string_view front = texts.front();
  if (texts.size() == 1) return Literal(front.substr(from));
  const size_t common =
      static_cast<size_t>(std::ranges::mismatch(front, texts.back()).in1 - front.begin());
  std::vector<RegexId> parts;
  size_t first = 0;
  if (front.size() == common) {
    parts.push_back(kEmpty);
    first = 1;
  }
  while (first < texts.size()) {
    const char next = texts[first][common];
    size_t end = first + 1;
    while (end < texts.size() && texts[end][common] == next) ++end;
    parts.push_back(AnyOfSorted(texts.subspan(first, end - first), common));
    first = end;
  }
  return Concat(Literal(front.substr(from, common - from)), Or(std::move(parts)));
}

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (node(first).kind != Kind::kConcat) return InternConcat(first, second);
  std::vector<RegexId> heads;
  for (; node(first).kind == Kind::kConcat; first = node(first).b) heads.push_back(node(first).a);
  budget_.Step(static_cast<int64_t>(heads.size()) / 4);
  RegexId all = InternConcat(first, second);
  for (; !heads.empty() && all != kNothing; heads.pop_back()) all = InternConcat(heads.back(), all);
  return all;
}

RegexId RegexPool::InternConcat(RegexId head, RegexId tail) {
  return Intern({.kind = Kind::kConcat, .a = head, .b = tail});
}

RegexId RegexPool::Concat(std::initializer_list<RegexId> parts) {
  RegexId all = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) all = Concat(*it, all);
  return all;
}

RegexId RegexPool::InternParts(Kind kind, std::vector<RegexId> parts) {
  Sort(&parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  // A part and its complement leave nothing, or everything.
  const auto before = [&](RegexId a, RegexId b) { return IsBefore(a, b); };
  for (const RegexId part : parts) {
    if (kind != Kind::kOnlyOne && node(part).kind == Kind::kNot &&
        std::ranges::binary_search(parts, node(part).a, before)) {
      return kind == Kind::kAnd ? kNothing : Anything();
    }
  }
  if (parts.size() == 1) return parts[0];
  return Intern({.kind = kind}, parts);
}

RegexId RegexPool::Or(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  ByteSet bytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RegexId part = parts[i];
    if (part == kAnything) return kAnything;
    const Node& n = node(part);
    if (n.kind == Kind::kOr) {
      for (const RegexId inner : Parts(n)) {
        if (node(inner).kind == Kind::kBytes) {
          bytes = bytes | Set(node(inner).a);
        } else {
          flat.push_back(inner);
        }
      }
    } else if (n.kind == Kind::kBytes) {
      bytes = bytes | Set(n.a);
    } else if (part != kNothing) {
      flat.push_back(part);
    }
  }
  if (!bytes.IsEmpty()) flat.push_back(Bytes(bytes));
  if (flat.empty()) return kNothing;
  if (swallowing_ != kNothing && std::ranges::find(flat, swallowing_) != flat.end()) {
    std::erase_if(flat, [&](RegexId part) {
      return part != swallowing_ && part != kEmpty && !node(part).has_boolean;
    });
  }
  DropFewer(&flat);
  DropTails(&flat);
  return InternParts(Kind::kOr, std::move(flat));
}

RegexId RegexPool::And(std::vector<RegexId> parts) {
  if (std::ranges::find(parts, kNothing) != parts.end()) return kNothing;
  const auto is_and = [&](RegexId part) { return node(part).kind == Kind::kAnd; };
  if (std::ranges::any_of(parts, is_and)) {
    std::vector<RegexId> flat;
    for (const RegexId part : parts) {
      const auto inner = is_and(part) ? Parts(node(part)) : std::span(&part, 1);
      flat.insert(flat.end(), inner.begin(), inner.end());
    }
    parts = std::move(flat);
  }
  std::erase(parts, kAnything);
  if (parts.empty()) return kAnything;
  if (std::ranges::find(parts, kEmpty) != parts.end()) {
    const bool all = std::ranges::all_of(parts, [&](RegexId part) { return node(part).nullable; });
    return all ? kEmpty : kNothing;
  }
  if (IsBesideAll(parts)) return kNothing;
  // Two different literals have nothing in common.
  RegexId text = kNothing;
  for (const RegexId part : parts) {
    if (node(part).kind != Kind::kLiteral || part == text) continue;
    if (text != kNothing) return kNothing;
    text = part;
  }
  return InternParts(Kind::kAnd, std::move(parts));
}

// Whether an intersection is empty: one part is the complement of `swallowing_`, another a subset
// of it.
bool RegexPool::IsBesideAll(const std::vector<RegexId>& parts) const {
  if (swallowing_ == kNothing) return false;
  const auto beside = [&](RegexId id) {
    return node(id).kind == Kind::kNot && node(id).a == swallowing_;
  };
  const auto within = [&](RegexId id) { return !node(id).has_boolean && !node(id).nullable; };
  return std::ranges::any_of(parts, beside) && std::ranges::any_of(parts, within);
}

RegexId RegexPool::OnlyOne(std::vector<RegexId> parts) {
  Sort(&parts);
  std::vector<RegexId> once, more;
  for (size_t i = 0; i < parts.size();) {
    size_t end = i + 1;
    while (end < parts.size() && parts[end] == parts[i]) ++end;
    if (parts[i] != kNothing) (end == i + 1 ? once : more).push_back(parts[i]);
    i = end;
  }
  // A subset of `swallowing_` overlaps with it, so the two are never exactly one.
  const auto swallows = [&](const std::vector<RegexId>& list) {
    return swallowing_ != kNothing && std::ranges::find(list, swallowing_) != list.end();
  };
  if (swallows(once) || swallows(more)) {
    const auto swallowed = std::stable_partition(once.begin(), once.end(), [&](RegexId part) {
      return part == swallowing_ || part == kEmpty || node(part).has_boolean;
    });
    more.insert(more.end(), swallowed, once.end());
    once.erase(swallowed, once.end());
  }
  if (once.empty()) return kNothing;
  const RegexId one = once.size() == 1 ? once[0] : InternParts(Kind::kOnlyOne, std::move(once));
  return more.empty() ? one : AndNot(one, Or(std::move(more)));
}

RegexId RegexPool::Not(RegexId part) {
  if (node(part).kind == Kind::kNot) return node(part).a;
  return Intern({.kind = Kind::kNot, .a = part});
}

RegexId RegexPool::Repeat(RegexId part, int32_t least, int32_t most) {
  if (most == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return least == 0 ? kEmpty : kNothing;
  if (node(part).nullable) least = 0;
  if (least == 1 && most == 1) return part;
  const Node& n = node(part);
  if (n.kind == Kind::kRepeat) {
    // (x{a,b}){c,d} is x{ac,bd} if every count in between is possible.
    const int64_t a = n.b, b = n.c, c = least, d = most;
    const bool unlimited = b == kUnlimited || d == kUnlimited;
    const bool whole = c == 0 ? a <= 1 : b == kUnlimited || a * (c + 1) <= b * c + 1;
    if (whole && a * c <= INT32_MAX && (unlimited || b * d <= INT32_MAX)) {
      return Repeat(n.a, static_cast<int32_t>(a * c),
                    unlimited ? kUnlimited : static_cast<int32_t>(b * d));
    }
  }
  return Intern({.kind = Kind::kRepeat, .a = part, .b = least, .c = most});
}

}  // namespace weft::constraint
