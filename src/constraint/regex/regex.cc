#include "constraint/regex/regex.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace weft::constraint {
namespace {

constexpr int32_t kMostEscapeBytes = 6;

}  // namespace

RegexPool::RegexPool() {
  Intern({.kind = Kind::kNothing, .life = Life::kDead}, 1);
  Intern({.kind = Kind::kEmpty, .nullable = true, .life = Life::kAlive}, 2);
}

void RegexPool::Spend(int64_t work, int64_t bytes) {
  work_ += work;
  bytes_ += bytes;
  if (work_ > most_work_ || bytes_ > most_bytes_) exhausted_ = true;
}

int32_t RegexPool::InternSet(const ByteSet& set) {
  uint64_t hash = 7;
  for (const uint64_t word : set.words) hash = MixHash(hash, word);
  const int32_t found =
      set_index_.Find(hash, [&](int32_t id) { return sets_[static_cast<size_t>(id)] == set; });
  if (found >= 0) return found;
  const auto id = static_cast<int32_t>(sets_.size());
  sets_.push_back(set);
  set_index_.Add(hash, id);
  Spend(1, sizeof(ByteSet) + 32);
  return id;
}

bool RegexPool::SameNode(const Node& n, const Node& other, std::span<const int32_t> list) const {
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

// What follows from a node's parts.
void RegexPool::Complete(Node* n, std::span<const int32_t> list) {
  ByteSet edges, first;
  edges.Add(0);
  const auto take = [&](RegexId part) {
    n->has_boolean |= node(part).has_boolean;
    n->exact &= node(part).exact;
    edges = edges | Edges(part);
    first = first | MayBegin(part);
  };
  switch (n->kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      first = sets_[static_cast<size_t>(n->a)];
      edges = first.Edges();
      break;
    case Kind::kLiteral:
      first = ByteSet::Of(static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)]));
      edges = first.Edges();
      break;
    case Kind::kConcat:
      take(n->a);
      if (node(n->a).nullable) take(n->b);
      n->has_boolean |= node(n->b).has_boolean;
      n->nullable = node(n->a).nullable && node(n->b).nullable;
      break;
    case Kind::kOr:
    case Kind::kAnd:
      n->nullable = n->kind == Kind::kAnd;
      for (const RegexId part : list) {
        take(part);
        const bool empty = node(part).nullable;
        n->nullable = n->kind == Kind::kAnd ? n->nullable && empty : n->nullable || empty;
      }
      if (n->kind == Kind::kAnd) {
        n->has_boolean = true;
        for (const RegexId part : list) first = first & MayBegin(part);
      }
      break;
    case Kind::kOnlyOne: {
      int nullable = 0;
      for (const RegexId part : list) {
        take(part);
        nullable += node(part).nullable ? 1 : 0;
      }
      n->nullable = nullable == 1;
      n->has_boolean = true;
      break;
    }
    case Kind::kNot:
      take(n->a);
      n->nullable = !node(n->a).nullable;
      n->has_boolean = true;
      first = ByteSet::All();
      break;
    case Kind::kRepeat:
      take(n->a);
      n->nullable = n->b == 0 || node(n->a).nullable;
      break;
    case Kind::kMultiple:
      edges = edges | ByteSet::Range('.', ':');
      first = ByteSet::Range('0', '9') | ByteSet::Of('.');
      n->exact = false;
      n->nullable = IsMultiple(*n);
      break;
    case Kind::kRespelled:
      take(n->a);
      n->has_boolean = true;  // there may be no way to its end
      first = ByteSet::All();
      for (int byte = 0; byte <= 0x20; ++byte) edges.Add(byte);
      edges = edges | EdgesOfEscapes();
      break;
    case Kind::kSpelled: {
      const ByteSet& escaped = EscapedBytes(static_cast<Escapes>(n->b));
      take(n->a);
      if (!(first & escaped).IsEmpty()) first = (first & ~escaped) | ByteSet::Of('\\');
      edges = edges | escaped.Edges() | ByteSet::Of('\\') | ByteSet::Of('\\' + 1);
      n->nullable = node(n->a).nullable;
      break;
    }
  }
  if (n->kind == Kind::kConcat && node(n->a).nullable) LinkOptions(n);
  if (n->life == Life::kUnknown && (n->nullable || !n->has_boolean)) n->life = Life::kAlive;
  if (n->life == Life::kUnknown) {
    const auto alive = [&](RegexId part) { return node(part).life == Life::kAlive; };
    const bool known = n->kind == Kind::kOr       ? std::ranges::any_of(list, alive)
                       : n->kind == Kind::kConcat ? alive(n->a) && alive(n->b)
                                                  : n->kind == Kind::kRepeat && alive(n->a);
    if (known) n->life = Life::kAlive;
  }
  n->exact &= !n->has_boolean;
  if (!n->nullable) EstimateLeast(n, list);
  n->farthest = FarthestOf(*n, list);
  n->way = WayOf(*n, list);
  n->edges = InternSet(edges);
  n->first = InternSet(first);
}

// Of an intersection: a byte behind which one of its complements holds whatever comes.
std::optional<int32_t> RegexPool::AwayFrom(std::span<const int32_t> parts) const {
  ByteSet away, first = ByteSet::All();
  for (const RegexId part : parts) {
    if (node(part).kind == Kind::kNot) away = away | ~MayBegin(node(part).a);
    first = first & MayBegin(part);
  }
  away = away & first;
  for (size_t word = 0; word < away.words.size(); ++word) {
    if (away.words[word] == 0) continue;
    return static_cast<int32_t>(64 * word) + std::countr_zero(away.words[word]);
  }
  return std::nullopt;
}

// Of a node that does not accept the empty text.
void RegexPool::EstimateLeast(Node* n, std::span<const int32_t> list) const {
  int64_t least = 1;
  switch (n->kind) {
    case Kind::kBytes:
      n->hint = 0;
      while (!sets_[static_cast<size_t>(n->a)].Has(n->hint)) ++n->hint;
      break;
    case Kind::kLiteral:
      least = n->b;
      n->hint = static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)]);
      break;
    case Kind::kConcat:
      least = int64_t{node(n->a).least} + node(n->b).least;
      n->hint = node(node(n->a).nullable ? n->b : n->a).hint;
      break;
    case Kind::kOr:
    case Kind::kOnlyOne:
    case Kind::kAnd: {
      const bool all = n->kind == Kind::kAnd;
      RegexId decides = list[0];
      for (const RegexId part : list) {
        const int32_t a = node(part).least, b = node(decides).least;
        if (all ? a > b : a < b) decides = part;
      }
      least = node(decides).least;
      n->hint = node(decides).hint;
      if (all) n->hint = AwayFrom(list).value_or(n->hint);
      break;
    }
    case Kind::kRepeat:
      least = int64_t{node(n->a).least} * n->b;
      n->hint = node(n->a).hint;
      break;
    case Kind::kRespelled: {
      // An escape of JSON may stand for one byte.
      const int32_t json = node(n->a).least - 1;
      least = json / kMostEscapeBytes + (n->b != 0 ? 1 : 0);
      n->hint = json == 0 && n->b != 0 ? n->b : node(n->a).hint;
      break;
    }
    case Kind::kMultiple:
      least = EstimateMultiple(n);
      break;
    case Kind::kSpelled: {
      least = node(n->a).least;
      const int32_t hint = node(n->a).hint;
      const bool escaped = hint >= 0 && EscapedBytes(static_cast<Escapes>(n->b)).Has(hint);
      n->hint = escaped ? '\\' : hint;
      break;
    }
    default:
      break;
  }
  n->least = static_cast<int32_t>(std::clamp<int64_t>(least, 1, kManyBytes));
}

RegexId RegexPool::Intern(const Node& wanted, uint64_t hash, std::span<const int32_t> list) {
  hash = MixHash(hash, static_cast<uint64_t>(wanted.kind));
  const int32_t found = node_index_.Find(
      hash, [&](int32_t id) { return SameNode(nodes_[static_cast<size_t>(id)], wanted, list); });
  if (found >= 0) return found;
  if (exhausted_ && nodes_.size() > 2) return kNothing;
  Node made = wanted;
  Complete(&made, list);
  if (IsList(made.kind)) {
    made.a = static_cast<int32_t>(lists_.size());
    made.b = static_cast<int32_t>(list.size());
    lists_.insert(lists_.end(), list.begin(), list.end());
  }
  const auto id = static_cast<RegexId>(nodes_.size());
  nodes_.push_back(made);
  node_index_.Add(hash, id);
  Spend(1 + static_cast<int64_t>(list.size()) / 4,
        static_cast<int64_t>(sizeof(Node) + 32 + 4 * list.size()));
  return id;
}

RegexId RegexPool::Anything() { return Not(kNothing); }

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNothing;
  Node n{.kind = Kind::kBytes, .a = InternSet(set)};
  return Intern(n, static_cast<uint64_t>(n.a));
}

RegexId RegexPool::Literal(std::string_view text) {
  if (text.empty()) return kEmpty;
  if (text.size() == 1) return Byte(static_cast<uint8_t>(text[0]));
  // A literal that came from texts_ itself is a suffix of a known one.
  const bool own = text.data() >= texts_.data() && text.data() < texts_.data() + texts_.size();
  const auto offset = own ? static_cast<size_t>(text.data() - texts_.data()) : texts_.size();
  if (!own) {
    texts_.append(text);
    Spend(0, static_cast<int64_t>(text.size()));
  }
  const Node n{.kind = Kind::kLiteral,
               .a = static_cast<int32_t>(offset),
               .b = static_cast<int32_t>(text.size())};
  return Intern(
      n, std::hash<std::string_view>{}(std::string_view(texts_).substr(offset, text.size())));
}

RegexId RegexPool::AnyOf(const std::vector<std::string>& texts) {
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  if (!std::ranges::is_sorted(sorted)) std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return AnyOfSorted(sorted, 0);
}

// Of different texts that have the first `from` bytes in common: what follows these.
RegexId RegexPool::AnyOfSorted(std::span<const std::string_view> texts, size_t from) {
  if (texts.empty() || exhausted_) return kNothing;
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
  Spend(static_cast<int64_t>(heads.size()) / 4, 0);
  RegexId all = InternConcat(first, second);
  for (; !heads.empty() && all != kNothing; heads.pop_back()) all = InternConcat(heads.back(), all);
  return all;
}

RegexId RegexPool::InternConcat(RegexId head, RegexId tail) {
  const Node n{.kind = Kind::kConcat, .a = head, .b = tail};
  return Intern(n, MixHash(static_cast<uint64_t>(head), static_cast<uint64_t>(tail)));
}

RegexId RegexPool::Concat(std::initializer_list<RegexId> parts) {
  RegexId all = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) all = Concat(*it, all);
  return all;
}

RegexId RegexPool::InternParts(Kind kind, std::vector<RegexId> parts) {
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  // A part and its complement leave nothing, or everything.
  for (const RegexId part : parts) {
    if (kind != Kind::kOnlyOne && node(part).kind == Kind::kNot &&
        std::ranges::binary_search(parts, node(part).a)) {
      return kind == Kind::kAnd ? kNothing : Anything();
    }
  }
  if (parts.size() == 1) return parts[0];
  uint64_t hash = 3;
  for (const RegexId part : parts) hash = MixHash(hash, static_cast<uint64_t>(part));
  return Intern({.kind = kind}, hash, parts);
}

RegexId RegexPool::Or(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  ByteSet bytes;
  const RegexId anything = Anything();
  for (size_t i = 0; i < parts.size(); ++i) {
    const RegexId part = parts[i];
    if (part == anything) return anything;
    const Node& n = node(part);
    if (n.kind == Kind::kOr) {
      for (const RegexId inner : Parts(n)) {
        if (node(inner).kind == Kind::kBytes) {
          bytes = bytes | sets_[static_cast<size_t>(node(inner).a)];
        } else {
          flat.push_back(inner);
        }
      }
    } else if (n.kind == Kind::kBytes) {
      bytes = bytes | sets_[static_cast<size_t>(n.a)];
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

RegexId RegexPool::And(const std::vector<RegexId>& parts) {
  std::vector<RegexId> flat;
  const RegexId anything = Anything();
  for (const RegexId part : parts) {
    if (part == kNothing) return kNothing;
    const Node& n = node(part);
    if (n.kind == Kind::kAnd) {
      const auto inner = Parts(n);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != anything) {
      flat.push_back(part);
    }
  }
  if (flat.empty()) return anything;
  if (std::ranges::find(flat, kEmpty) != flat.end()) {
    const bool all = std::ranges::all_of(flat, [&](RegexId part) { return node(part).nullable; });
    return all ? kEmpty : kNothing;
  }
  if (IsBesideAll(flat)) return kNothing;
  return InternParts(Kind::kAnd, std::move(flat));
}

// Of an intersection: one part is beside all, another within it.
bool RegexPool::IsBesideAll(const std::vector<RegexId>& parts) const {
  if (swallowing_ == kNothing) return false;
  const auto beside = [&](RegexId id) {
    return node(id).kind == Kind::kNot && node(id).a == swallowing_;
  };
  const auto within = [&](RegexId id) { return !node(id).has_boolean && !node(id).nullable; };
  return std::ranges::any_of(parts, beside) && std::ranges::any_of(parts, within);
}

RegexId RegexPool::OnlyOne(std::vector<RegexId> parts) {
  std::ranges::sort(parts);
  std::vector<RegexId> once, more;
  for (size_t i = 0; i < parts.size();) {
    size_t end = i + 1;
    while (end < parts.size() && parts[end] == parts[i]) ++end;
    if (parts[i] != kNothing) (end == i + 1 ? once : more).push_back(parts[i]);
    i = end;
  }
  // What is a part of `swallowing_` is in that, too.
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
  return Intern({.kind = Kind::kNot, .a = part}, static_cast<uint64_t>(part));
}

RegexId RegexPool::Repeat(RegexId part, int32_t least, int32_t most) {
  if (most == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return least == 0 ? kEmpty : kNothing;
  if (node(part).nullable) least = 0;
  if (least == 1 && most == 1) return part;
  const Node& n = node(part);
  if (n.kind == Kind::kRepeat) {
    // (x{a,b}){c,d} is x{ac,bd} where no number between these is left out.
    const int64_t a = n.b, b = n.c, c = least, d = most;
    const bool unlimited = b == kUnlimited || d == kUnlimited;
    const bool whole = c == 0 ? a <= 1 : b == kUnlimited || a * (c + 1) <= b * c + 1;
    if (whole && a * c <= INT32_MAX && (unlimited || b * d <= INT32_MAX)) {
      return Repeat(n.a, static_cast<int32_t>(a * c),
                    unlimited ? kUnlimited : static_cast<int32_t>(b * d));
    }
  }
  return Intern({.kind = Kind::kRepeat, .a = part, .b = least, .c = most},
                MixHash(MixHash(static_cast<uint64_t>(part), static_cast<uint64_t>(least)),
                        static_cast<uint64_t>(most)));
}

}  // namespace weft::constraint
