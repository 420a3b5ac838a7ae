// What can be said of an expression by its form, without walking its automaton.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

// Expressions are nested no deeper where they are looked through.
constexpr int kMostNesting = 200;

}  // namespace

RegexPool::ByteUse RegexPool::BytesUsed(RegexId id, int depth) const {
  ByteUse use;
  if (depth > kMostNesting) return {ByteSet::All(), ByteSet::All()};
  // Of a sequence, `last` is that of what has been seen of it.
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
    case Kind::kOr:
    case Kind::kAnd:
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
    default:
      break;
  }
  return static_cast<int32_t>(std::min<int64_t>(bytes, kManyBytes));
}

RegexId RegexPool::Relax(RegexId id, size_t near) {
  const Node& n = node(id);
  RegexId relaxed = id;
  if (n.farthest < kManyBytes) {
    relaxed = RelaxPlain(id, near, 0);
  } else if (n.kind == Kind::kAnd && n.b == 2) {
    relaxed = RelaxBoth(id, near);
  }
  if (exhausted_) relaxed = id;
  nodes_[static_cast<size_t>(id)].relaxed[near] = relaxed;
  return relaxed;
}

// Of an expression without intersections and complements: whatever a text has come to, the rest
// can be chosen as short as may be.
RegexId RegexPool::RelaxPlain(RegexId id, size_t near, int depth) {
  const Node n = node(id);
  if (n.relaxed[near] >= 0) return n.relaxed[near];
  if (exhausted_ || depth > kMostNesting) return id;
  Spend(1, 0);
  RegexId relaxed = id;
  switch (n.kind) {
    case Kind::kConcat: {
      std::vector<RegexId> tails;
      RegexId at = id;
      for (; node(at).kind == Kind::kConcat && node(at).relaxed[near] < 0; at = node(at).b) {
        tails.push_back(at);
      }
      relaxed = RelaxPlain(at, near, depth + 1);
      for (; !tails.empty() && !exhausted_; tails.pop_back()) {
        relaxed = Concat(RelaxPlain(node(tails.back()).a, near, depth + 1), relaxed);
        nodes_[static_cast<size_t>(tails.back())].relaxed[near] = exhausted_ ? -1 : relaxed;
      }
      break;
    }
    case Kind::kOr: {
      std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
      for (RegexId& part : parts) part = RelaxPlain(part, near, depth + 1);
      relaxed = Or(std::move(parts));
      break;
    }
    case Kind::kRepeat: {
      // So many times, and it is begun once more.
      const int32_t times = kNear[near] / std::max(node(n.a).least, 1) + 2;
      const bool is_far = n.c != kUnlimited && n.c >= times;
      relaxed =
          Repeat(RelaxPlain(n.a, near, depth + 1), std::min(n.b, times), is_far ? kUnlimited : n.c);
      break;
    }
    default:
      break;
  }
  if (!exhausted_) nodes_[static_cast<size_t>(id)].relaxed[near] = relaxed;
  return relaxed;
}

// Of strings that must match something and be no longer than so many characters: how long they are
// does not matter where there is room enough.
RegexId RegexPool::RelaxBoth(RegexId id, size_t near) {
  const auto parts = Parts(node(id));
  RegexId counted = parts[0], other = parts[1];
  if (CharactersLeft(counted) < 0) std::swap(counted, other);
  const int64_t room = CharactersLeft(counted);
  if (room < 0 || node(other).farthest >= kManyBytes) return id;
  const bool is_far = room >= kNear[near] + int64_t{node(other).farthest};
  return is_far ? RelaxPlain(other, near, 0) : id;
}

// Of what is left of any strings of limited length: how many characters may come, besides that
// of which some bytes were read. Below 0 where it is something else.
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
