#include "constraint/regex.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft::constraint {
namespace {

constexpr int32_t kBeforePoint = -1;

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
  if (n.kind == Kind::kOr || n.kind == Kind::kAnd) {
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
  ByteSet edges;
  edges.Add(0);
  const auto take = [&](RegexId part) {
    n->has_boolean |= node(part).has_boolean;
    edges = edges | Edges(part);
  };
  switch (n->kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      edges = sets_[static_cast<size_t>(n->a)].Edges();
      break;
    case Kind::kLiteral:
      edges = ByteSet::Of(static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)])).Edges();
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
      n->has_boolean |= n->kind == Kind::kAnd;
      break;
    case Kind::kNot:
      take(n->a);
      n->nullable = !node(n->a).nullable;
      n->has_boolean = true;
      break;
    case Kind::kRepeat:
      take(n->a);
      n->nullable = n->b == 0 || node(n->a).nullable;
      break;
    case Kind::kMultiple: {
      for (const char c : {'.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'}) {
        edges.Add(c);
      }
      const Multiple& multiple = multiples_[static_cast<size_t>(n->a)];
      int64_t remainder = n->b | static_cast<int64_t>(n->c) << 31;
      for (int32_t i = std::max(n->d, 0); i < multiple.decimals; ++i) {
        remainder = static_cast<int64_t>(static_cast<__int128>(remainder) * 10 % multiple.modulus);
      }
      n->nullable = n->d != 0 && remainder == 0;
      break;
    }
  }
  if (n->life == Life::kUnknown && (n->nullable || !n->has_boolean)) n->life = Life::kAlive;
  n->edges = InternSet(edges);
}

RegexId RegexPool::Intern(const Node& wanted, uint64_t hash, std::span<const int32_t> list) {
  hash = MixHash(hash, static_cast<uint64_t>(wanted.kind));
  const int32_t found = node_index_.Find(
      hash, [&](int32_t id) { return SameNode(nodes_[static_cast<size_t>(id)], wanted, list); });
  if (found >= 0) return found;
  if (exhausted_ && nodes_.size() > 2) return kNothing;
  Node made = wanted;
  Complete(&made, list);
  if (made.kind == Kind::kOr || made.kind == Kind::kAnd) {
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

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (node(first).kind == Kind::kConcat) {
    const RegexId head = node(first).a, tail = node(first).b;
    return Concat(head, Concat(tail, second));
  }
  const Node n{.kind = Kind::kConcat, .a = first, .b = second};
  return Intern(n, MixHash(static_cast<uint64_t>(first), static_cast<uint64_t>(second)));
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
    if (node(part).kind == Kind::kNot && std::ranges::binary_search(parts, node(part).a)) {
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
  return InternParts(Kind::kAnd, std::move(flat));
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
  if (n.kind == Kind::kRepeat && n.b == 0 && n.c == kUnlimited) return part;  // (x*)*
  return Intern({.kind = Kind::kRepeat, .a = part, .b = least, .c = most},
                MixHash(MixHash(static_cast<uint64_t>(part), static_cast<uint64_t>(least)),
                        static_cast<uint64_t>(most)));
}

RegexId RegexPool::Multiples(const Multiple& multiple) {
  multiples_.push_back(multiple);
  const auto index = static_cast<int32_t>(multiples_.size()) - 1;
  return MultipleState(index, 0, kBeforePoint);
}

RegexId RegexPool::MultipleState(int32_t multiple, int64_t remainder, int32_t digits) {
  // Before the point there are always digits that lead to a multiple; after it only as many
  // as count, and they must make up for what is missing.
  const Multiple& m = multiples_[static_cast<size_t>(multiple)];
  if (digits != kBeforePoint) {
    __int128 scale = 1;
    for (int32_t i = digits; i < m.decimals; ++i) scale *= 10;
    const __int128 over = remainder * scale % m.modulus;
    if (over != 0 && m.modulus - over >= scale) return kNothing;
  }
  const Node n{.kind = Kind::kMultiple,
               .a = multiple,
               .b = static_cast<int32_t>(remainder & 0x7FFFFFFF),
               .c = static_cast<int32_t>(remainder >> 31),
               .d = digits};
  return Intern(n,
                MixHash(MixHash(static_cast<uint64_t>(multiple), static_cast<uint64_t>(remainder)),
                        static_cast<uint64_t>(digits)));
}

RegexId RegexPool::DeriveMultiple(const Node& n, uint8_t byte) {
  const Multiple multiple = multiples_[static_cast<size_t>(n.a)];
  const int64_t remainder = n.b | static_cast<int64_t>(n.c) << 31;
  if (byte == '.') {
    return n.d == kBeforePoint ? MultipleState(n.a, remainder, 0) : kNothing;
  }
  if (byte < '0' || byte > '9') return kNothing;
  if (n.d == multiple.decimals) {
    if (byte != '0') return kNothing;
    // The last digit that counts was read (or there is none): only zeros follow.
    return remainder == 0 ? Repeat(Byte('0'), 0, kUnlimited) : kNothing;
  }
  const auto next = static_cast<int64_t>((static_cast<__int128>(remainder) * 10 + (byte - '0')) %
                                         multiple.modulus);
  return MultipleState(n.a, next, n.d == kBeforePoint ? kBeforePoint : n.d + 1);
}

RegexId RegexPool::RawDerive(RegexId id, uint8_t byte) {
  const Node n = node(id);
  Spend(1, 0);
  if (exhausted_) return kNothing;
  switch (n.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return sets_[static_cast<size_t>(n.a)].Has(byte) ? kEmpty : kNothing;
    case Kind::kLiteral:
      if (static_cast<uint8_t>(texts_[static_cast<size_t>(n.a)]) != byte) return kNothing;
      return Literal(std::string_view(texts_).substr(static_cast<size_t>(n.a) + 1,
                                                     static_cast<size_t>(n.b) - 1));
    case Kind::kConcat: {
      const RegexId head = Concat(RawDerive(n.a, byte), n.b);
      return node(n.a).nullable ? Or({head, RawDerive(n.b, byte)}) : head;
    }
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
      Spend(static_cast<int64_t>(parts.size()) / 4, 0);
      for (RegexId& part : parts) {
        part = RawDerive(part, byte);
        if (part == kNothing && n.kind == Kind::kAnd) return kNothing;
      }
      return n.kind == Kind::kOr ? Or(std::move(parts)) : And(parts);
    }
    case Kind::kNot:
      return Not(RawDerive(n.a, byte));
    case Kind::kRepeat: {
      const RegexId rest =
          Repeat(n.a, std::max(n.b - 1, 0), n.c == kUnlimited ? kUnlimited : n.c - 1);
      return Concat(RawDerive(n.a, byte), rest);
    }
    case Kind::kMultiple:
      return DeriveMultiple(n, byte);
  }
  return kNothing;
}

RegexId RegexPool::DeriveMissing(RegexId id, uint8_t byte) {
  if (id == kNothing || id == kEmpty) return kNothing;
  RegexId next = RawDerive(id, byte);
  if (!IsLive(next)) next = kNothing;
  if (exhausted_) return kNothing;
  Node& n = nodes_[static_cast<size_t>(id)];
  if (n.row < 0) {
    n.row = static_cast<int32_t>(rows_.size());
    rows_.emplace_back().fill(-1);
    Spend(1, 1024);
  }
  int32_t* row = rows_[static_cast<size_t>(n.row)].data();
  const ByteSet& edges = sets_[static_cast<size_t>(n.edges)];
  int first = byte, end = byte + 1;
  while (!edges.Has(first)) --first;
  while (end < 256 && !edges.Has(end)) ++end;
  std::fill(row + first, row + end, next);
  return next;
}

bool RegexPool::IsLive(RegexId id) {
  const Life life = node(id).life;
  return life == Life::kUnknown ? SearchLife(id) : life == Life::kAlive;
}

// Nearest first, so that a short way to the end is found before a large automaton is built.
bool RegexPool::SearchLife(RegexId start) {
  std::vector<std::pair<RegexId, size_t>> queue{{start, 0}};  // and who led there
  std::vector<bool> seen(nodes_.size() + 64);
  const auto mark = [&](RegexId id) {
    const auto at = static_cast<size_t>(id);
    if (at >= seen.size()) seen.resize(at + at / 2 + 64);
    const bool was = seen[at];
    seen[at] = true;
    return !was;
  };
  mark(start);
  for (size_t at = 0; at < queue.size(); ++at) {
    const RegexId id = queue[at].first;
    const ByteSet edges = Edges(id);
    for (int byte = 0; byte < 256; ++byte) {
      if (!edges.Has(byte)) continue;
      Spend(1, 0);
      if (exhausted_) return false;
      const RegexId next = RawDerive(id, static_cast<uint8_t>(byte));
      const Life life = node(next).life;
      if (life == Life::kAlive) {
        for (size_t back = at;; back = queue[back].second) {
          nodes_[static_cast<size_t>(queue[back].first)].life = Life::kAlive;
          if (back == 0) return true;
        }
      }
      if (life == Life::kUnknown && mark(next)) queue.push_back({next, at});
    }
  }
  if (exhausted_) return false;
  for (const auto& [id, from] : queue) nodes_[static_cast<size_t>(id)].life = Life::kDead;
  return false;
}

bool RegexPool::Accepts(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = Derive(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return AcceptsEmpty(id);
}

ByteSet RegexPool::Edges(RegexId id) const { return sets_[static_cast<size_t>(node(id).edges)]; }

ByteSet RegexPool::FirstBytes(RegexId id) {
  const ByteSet edges = Edges(id);
  ByteSet first;
  bool live = false;
  for (int byte = 0; byte < 256; ++byte) {
    if (edges.Has(byte)) live = Derive(id, static_cast<uint8_t>(byte)) != kNothing;
    if (live) first.Add(byte);
  }
  return first;
}

}  // namespace weft::constraint
