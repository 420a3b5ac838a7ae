// Properties of an expression that follow from its form, without walking its automaton.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

// Limit for the nesting depth of analysed expressions.
constexpr int kMostNesting = 200;
// The same limit for TextCore.
constexpr int kMostCoreNesting = 8;

}  // namespace

RegexPool::ByteUse RegexPool::BytesUsed(RegexId id, int depth) const {
  ByteUse use;
  if (depth > kMostNesting) return {ByteSet::All(), ByteSet::All()};
  // For a sequence, `last` belongs to the part seen so far.
  for (; node(id).kind == Kind::kConcat; id = node(id).b) {
    const ByteUse head = BytesUsed(node(id).a, depth + 1);
    use.any = use.any | head.any;
    use.last = node(node(id).a).nullable ? use.last | head.last : head.last;
  }
  const Node& n = node(id);
  ByteUse tail;
  switch (n.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      tail.any = tail.last = sets_[static_cast<size_t>(n.a)];
      break;
    case Kind::kLiteral:
      for (const char c :
           std::string_view(texts_).substr(static_cast<size_t>(n.a), static_cast<size_t>(n.b))) {
        tail.last = ByteSet::Of(static_cast<uint8_t>(c));
        tail.any = tail.any | tail.last;
      }
      break;
    case Kind::kTexts:
      for (const TextPlace& place : Listed(n.a, n.b)) {
        const std::string_view rest = TextAt(place).substr(static_cast<size_t>(n.c));
        for (const char c : rest) tail.any.Add(static_cast<uint8_t>(c));
        if (!rest.empty()) tail.last.Add(static_cast<uint8_t>(rest.back()));
      }
      break;
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kOnlyOne:
      if (n.kind == Kind::kAnd) tail = {ByteSet::All(), ByteSet::All()};
      for (const RegexId part : Parts(n)) {
        const ByteUse one = BytesUsed(part, depth + 1);
        const bool all = n.kind == Kind::kAnd;
        tail.any = all ? tail.any & one.any : tail.any | one.any;
        tail.last = all ? tail.last & one.last : tail.last | one.last;
      }
      break;
    case Kind::kRepeat:
      tail = BytesUsed(n.a, depth + 1);
      break;
    default:
      tail = {ByteSet::All(), ByteSet::All()};
      break;
  }
  use.any = use.any | tail.any;
  use.last = n.nullable ? use.last | tail.last : tail.last;
  return use;
}

int32_t RegexPool::FarthestOf(const Node& n, std::span<const int32_t> list) const {
  const auto farthest = [&](RegexId part) { return int64_t{node(part).farthest}; };
  int64_t bytes = kManyBytes;
  switch (n.kind) {
    case Kind::kEmpty:
      bytes = 0;
      break;
    case Kind::kBytes:
    case Kind::kLiteral:
      bytes = n.least;
      break;
    case Kind::kConcat:
      bytes = std::max(farthest(n.a) + node(n.b).least, farthest(n.b));
      break;
    case Kind::kOr:
      bytes = 0;
      for (const RegexId part : list) bytes = std::max(bytes, farthest(part));
      break;
    case Kind::kRepeat:
      bytes = farthest(n.a) + int64_t{std::max(n.b - 1, 0)} * node(n.a).least;
      break;
    case Kind::kTexts:
      bytes = std::ranges::max(Listed(n.a, n.b), {}, &TextPlace::length).length - n.c;
      break;
    default:
      break;
  }
  return static_cast<int32_t>(std::min<int64_t>(bytes, kManyBytes));
}

// REQUIRES: the node's other properties are known.
int32_t RegexPool::WayOf(const Node& n, std::span<const int32_t> list) const {
  const auto way = [&](RegexId part) { return int64_t{node(part).way}; };
  int64_t bytes = kManyBytes;
  if (n.nullable) {
    bytes = 0;
  } else if (n.farthest < kManyBytes) {
    bytes = n.least;
  } else if (n.kind == Kind::kConcat) {
    bytes = way(n.a) + way(n.b);
  } else if (n.kind == Kind::kRepeat) {
    bytes = way(n.a) * n.b;
  } else if (n.kind == Kind::kOr) {
    for (const RegexId part : list) bytes = std::min(bytes, way(part));
  }
  return static_cast<int32_t>(std::min<int64_t>(bytes, kManyBytes));
}

// A subset of `id` that no text restricts: everything that may follow some text may also come at
// once. kNothing if none is known.
RegexId RegexPool::TextCore(RegexId id, int depth) {
  const Node n = node(id);
  if (depth > kMostCoreNesting) return kNothing;
  if (n.kind == Kind::kConcat) {
    if (n.a == node(swallowing_).a) return id;
    const Kind head = node(n.a).kind;
    if (head != Kind::kOr && head != Kind::kAnd) return kNothing;
    return Concat(TextCore(n.a, depth + 1), n.b);
  }
  if (n.kind != Kind::kOr && n.kind != Kind::kAnd) return kNothing;
  const std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
  std::vector<RegexId> cores;
  for (const RegexId part : parts) {
    const RegexId core = TextCore(part, depth + 1);
    if (n.kind == Kind::kOr && core != kNothing) return core;
    if (n.kind == Kind::kAnd && core == kNothing) return kNothing;
    cores.push_back(core);
  }
  return n.kind == Kind::kAnd ? And(std::move(cores)) : kNothing;
}

bool RegexPool::TakesAllText(RegexId id) {
  if (node(swallowing_).kind != Kind::kConcat) return false;
  const RegexId core = TextCore(id, 0);
  return core != kNothing && IsLive(core);
}

RegexId RegexPool::Relax(RegexId id, size_t near) {
  const Node& n = node(id);
  RegexId relaxed = id;
  if (n.farthest < kManyBytes) {
    relaxed = RelaxPlain(id, near);
  } else if (n.kind == Kind::kAnd && n.b == 2) {
    relaxed = RelaxBoth(id, near);
  }
  if (exhausted_) relaxed = id;
  nodes_[static_cast<size_t>(id)].relaxed[near] = relaxed;
  return relaxed;
}

// For an expression without intersections and complements: after any text, the rest can be as short
// as possible.
RegexId RegexPool::RelaxPlain(RegexId id, size_t near) {
  const Node n = node(id);
  if (n.relaxed[near] >= 0) return n.relaxed[near];
  if (exhausted_ || n.height > kMostNesting) return id;
  Spend(1, 0);
  RegexId relaxed = id;
  switch (n.kind) {
    case Kind::kConcat: {
      std::vector<RegexId> tails;
      RegexId at = id;
      for (; node(at).kind == Kind::kConcat && node(at).relaxed[near] < 0; at = node(at).b) {
        tails.push_back(at);
      }
      relaxed = RelaxPlain(at, near);
      for (; !tails.empty() && !exhausted_; tails.pop_back()) {
        relaxed = Concat(RelaxPlain(node(tails.back()).a, near), relaxed);
        nodes_[static_cast<size_t>(tails.back())].relaxed[near] = exhausted_ ? -1 : relaxed;
      }
      break;
    }
    case Kind::kOr: {
      std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
      for (RegexId& part : parts) part = RelaxPlain(part, near);
      relaxed = Or(std::move(parts));
      break;
    }
    case Kind::kRepeat:
      relaxed = RepeatNear(n, RelaxPlain(n.a, near), kRelaxBytes[near]);
      break;
    default:
      break;
  }
  if (!exhausted_) nodes_[static_cast<size_t>(id)].relaxed[near] = relaxed;
  return relaxed;
}

// The repetition, as far as texts of `bytes` bytes can tell.
RegexId RegexPool::RepeatNear(const Form& repeat, RegexId part, int32_t bytes) {
  // Complete repetitions that fit, and one more that is begun.
  const int32_t times = bytes / std::max(node(repeat.a).least, 1) + 2;
  const bool is_far = repeat.c != kUnlimited && repeat.c >= times;
  return Repeat(part, std::min(repeat.b, times), is_far ? kUnlimited : repeat.c);
}

RegexId RegexPool::Loosen(RegexId id) {
  const Node n = node(id);
  if (n.loosened >= 0) return n.loosened;
  if (exhausted_ || n.height > kMostNesting) return id;
  Spend(1, 0);
  RegexId loosened = id;
  if (!n.has_boolean) {
    loosened = n.farthest < kManyBytes ? RelaxPlain(id, kNear.size()) : id;
  } else if (n.kind == Kind::kConcat) {
    std::vector<RegexId> heads;
    RegexId at = id;
    for (; node(at).kind == Kind::kConcat && node(at).has_boolean; at = node(at).b) {
      heads.push_back(node(at).a);
    }
    loosened = Loosen(at);
    for (; !heads.empty() && !exhausted_; heads.pop_back()) {
      loosened = Concat(Loosen(heads.back()), loosened);
    }
  } else if (n.kind == Kind::kRepeat) {
    loosened = RepeatNear(n, Loosen(n.a), kLooseBytes);
  } else if (n.kind == Kind::kOr || n.kind == Kind::kAnd) {
    std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
    for (RegexId& part : parts) part = Loosen(part);
    loosened = n.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
  }
  if (exhausted_) return id;
  nodes_[static_cast<size_t>(id)].loosened = loosened;
  return loosened;
}

// For strings that must match something and have a maximum length: the length does not matter if
// enough room is left.
RegexId RegexPool::RelaxBoth(RegexId id, size_t near) {
  const auto parts = Parts(node(id));
  RegexId counted = parts[0], other = parts[1];
  if (CharactersLeft(counted) < 0) std::swap(counted, other);
  const int64_t room = CharactersLeft(counted);
  if (room < 0 || node(other).farthest >= kManyBytes) return id;
  const bool is_far = room >= kNear[near] + int64_t{node(other).farthest};
  return is_far ? RelaxPlain(other, near) : id;
}

// For the rest of arbitrary strings of limited length: how many characters may come, not counting
// one that is partly read. Negative for other expressions.
int64_t RegexPool::CharactersLeft(RegexId id) const {
  const Node& all = node(swallowing_);
  if (all.kind != Kind::kConcat || node(all.a).kind != Kind::kRepeat) return -1;
  for (; node(id).kind == Kind::kConcat; id = node(id).b) {
    const Node& n = node(id);
    if (node(n.a).kind == Kind::kRepeat && node(n.a).a == node(all.a).a) {
      return n.b == all.b && node(n.a).b == 0 ? node(n.a).c : -1;
    }
  }
  return -1;
}

}  // namespace weft::constraint
