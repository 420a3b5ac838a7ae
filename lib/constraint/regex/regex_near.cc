// Properties of an expression that follow from its form, without walking its automaton.
#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/analysis.h"
#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// Limit for the nesting depth of analysed expressions.
constexpr int kMaxNesting = 200;
// The same limit for TextCore.
constexpr int kMaxCoreNesting = 8;
constexpr int64_t kMaxCommonMultiple = 1'000'000'000'000;

}  // namespace

RegexAnalysis::ByteUse RegexAnalysis::BytesUsed(RegexId id, int depth) const {
  ByteUse use;
  if (depth > kMaxNesting) return {ByteSet::All(), ByteSet::All()};
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
      tail.any = tail.last = pool_.Set(n.a);
      break;
    case Kind::kLiteral:
      for (const char c : std::string_view(pool_.texts_)
                              .substr(static_cast<size_t>(n.a), static_cast<size_t>(n.b))) {
        tail.last = ByteSet::Of(static_cast<uint8_t>(c));
        tail.any = tail.any | tail.last;
      }
      break;
    case Kind::kTexts:
      for (const regex::TextPlace& place : pool_.Listed(n.a, n.b)) {
        const std::string_view rest = pool_.TextAt(place).substr(static_cast<size_t>(n.c));
        for (const char c : rest) tail.any.Add(static_cast<uint8_t>(c));
        if (!rest.empty()) tail.last.Add(static_cast<uint8_t>(rest.back()));
      }
      break;
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kOnlyOne:
      if (n.kind == Kind::kAnd) tail = {ByteSet::All(), ByteSet::All()};
      for (const RegexId part : pool_.Parts(n)) {
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

// A subset of `id` that no text restricts: everything that may follow some text may also come at
// once. kNothing if none is known.
RegexId RegexAnalysis::TextCore(RegexId id, int depth) {
  const Node n = node(id);
  if (depth > kMaxCoreNesting) return kNothing;
  if (n.kind == Kind::kConcat) {
    if (n.a == node(pool_.swallowing_).a) return id;
    const Kind head = node(n.a).kind;
    if (head != Kind::kOr && head != Kind::kAnd) return kNothing;
    return pool_.Concat(TextCore(n.a, depth + 1), n.b);
  }
  if (n.kind != Kind::kOr && n.kind != Kind::kAnd) return kNothing;
  const std::vector<RegexId> parts(pool_.Parts(n).begin(), pool_.Parts(n).end());
  std::vector<RegexId> cores;
  for (const RegexId part : parts) {
    const RegexId core = TextCore(part, depth + 1);
    if (n.kind == Kind::kOr && core != kNothing) return core;
    if (n.kind == Kind::kAnd && core == kNothing) return kNothing;
    cores.push_back(core);
  }
  return n.kind == Kind::kAnd ? pool_.And(std::move(cores)) : kNothing;
}

bool RegexAnalysis::TakesAllText(RegexId id) {
  if (node(pool_.swallowing_).kind != Kind::kConcat) return false;
  const RegexId core = TextCore(id, 0);
  return core != kNothing && pool_.walk().IsLive(core);
}

RegexId RegexAnalysis::Relax(RegexId id, size_t near) {
  const Node& n = node(id);
  RegexId relaxed = id;
  if (n.farthest < kManyBytes) {
    relaxed = RelaxPlain(id, near);
  } else if (n.kind == Kind::kAnd && n.b == 2) {
    relaxed = RelaxBoth(id, near);
  }
  if (budget().exhausted()) relaxed = id;
  At(id).relaxed[near] = relaxed;
  return relaxed;
}

// For an expression without intersections and complements: after any text, the rest can be as short
// as possible.
RegexId RegexAnalysis::RelaxPlain(RegexId id, size_t near) {
  const Node n = node(id);
  if (n.relaxed[near] >= 0) return n.relaxed[near];
  if (budget().exhausted() || n.height > kMaxNesting) return id;
  budget().Spend(1, 0);
  RegexId relaxed = id;
  switch (n.kind) {
    case Kind::kConcat: {
      std::vector<RegexId> tails;
      RegexId at = id;
      for (; node(at).kind == Kind::kConcat && node(at).relaxed[near] < 0; at = node(at).b) {
        tails.push_back(at);
      }
      relaxed = RelaxPlain(at, near);
      for (; !tails.empty() && !budget().exhausted(); tails.pop_back()) {
        relaxed = pool_.Concat(RelaxPlain(node(tails.back()).a, near), relaxed);
        At(tails.back()).relaxed[near] = budget().exhausted() ? -1 : relaxed;
      }
      break;
    }
    case Kind::kOr: {
      std::vector<RegexId> parts(pool_.Parts(n).begin(), pool_.Parts(n).end());
      for (RegexId& part : parts) part = RelaxPlain(part, near);
      relaxed = pool_.Or(std::move(parts));
      break;
    }
    case Kind::kRepeat:
      relaxed = RepeatNear(n, RelaxPlain(n.a, near), regex::kRelaxBytes[near]);
      break;
    default:
      break;
  }
  if (!budget().exhausted()) At(id).relaxed[near] = relaxed;
  return relaxed;
}

// The repetition, as far as texts of `bytes` bytes can tell.
RegexId RegexAnalysis::RepeatNear(const Form& repeat, RegexId part, int32_t bytes) {
  // Complete repetitions that fit, and one more that is begun.
  const int32_t times = bytes / std::max(node(repeat.a).least, 1) + 2;
  const bool is_far = repeat.c != kUnlimited && repeat.c >= times;
  return pool_.Repeat(part, std::min(repeat.b, times), is_far ? kUnlimited : repeat.c);
}

RegexId RegexAnalysis::Loosen(RegexId id) {
  const Node n = node(id);
  if (n.loosened >= 0) return n.loosened;
  if (budget().exhausted() || n.height > kMaxNesting) return id;
  budget().Spend(1, 0);
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
    for (; !heads.empty() && !budget().exhausted(); heads.pop_back()) {
      loosened = pool_.Concat(Loosen(heads.back()), loosened);
    }
  } else if (n.kind == Kind::kRepeat) {
    loosened = RepeatNear(n, Loosen(n.a), kLooseBytes);
  } else if (n.kind == Kind::kOr || n.kind == Kind::kAnd) {
    std::vector<RegexId> parts(pool_.Parts(n).begin(), pool_.Parts(n).end());
    for (RegexId& part : parts) part = Loosen(part);
    loosened = n.kind == Kind::kOr ? pool_.Or(std::move(parts)) : pool_.And(std::move(parts));
  }
  if (budget().exhausted()) return id;
  At(id).loosened = loosened;
  return loosened;
}

// For strings that must match something and have a maximum length: the length does not matter if
// enough room is left.
RegexId RegexAnalysis::RelaxBoth(RegexId id, size_t near) {
  const auto parts = pool_.Parts(node(id));
  RegexId counted = parts[0], other = parts[1];
  if (CharactersLeft(counted) < 0) std::swap(counted, other);
  const int64_t room = CharactersLeft(counted);
  if (room < 0 || node(other).farthest >= kManyBytes) return id;
  const bool is_far = room >= kNear[near] + int64_t{node(other).farthest};
  return is_far ? RelaxPlain(other, near) : id;
}

// For the rest of arbitrary strings of limited length: how many characters may come, not counting
// one that is partly read. Negative for other expressions.
int64_t RegexAnalysis::CharactersLeft(RegexId id) const {
  const Node& all = node(pool_.swallowing_);
  if (all.kind != Kind::kConcat || node(all.a).kind != Kind::kRepeat) return -1;
  for (; node(id).kind == Kind::kConcat; id = node(id).b) {
    const Node& n = node(id);
    if (node(n.a).kind == Kind::kRepeat && node(n.a).a == node(all.a).a) {
      return n.b == all.b && node(n.a).b == 0 ? node(n.a).c : -1;
    }
  }
  return -1;
}

int64_t RegexAnalysis::CommonMultiple(RegexId id) const {
  std::set<int32_t> found;
  std::set<RegexId> seen{id};
  for (std::vector<RegexId> todo{id}; !todo.empty();) {
    const Node& n = node(todo.back());
    todo.pop_back();
    const auto visit = [&](RegexId part) {
      if (seen.insert(part).second) todo.push_back(part);
    };
    switch (n.kind) {
      case Kind::kMultiple:
        found.insert(n.a);
        break;
      case Kind::kConcat:
        visit(n.a);
        visit(n.b);
        break;
      case Kind::kOr:
      case Kind::kAnd:
      case Kind::kOnlyOne:
        for (const RegexId part : pool_.Parts(n)) visit(part);
        break;
      case Kind::kNot:
      case Kind::kRepeat:
      case Kind::kRespelled:
      case Kind::kSpelled:
        visit(n.a);
        break;
      default:
        break;
    }
  }
  int32_t decimals = 0;
  for (const int32_t one : found) {
    decimals = std::max(decimals, pool_.multiples_[static_cast<size_t>(one)].decimals);
  }
  __int128 common = 1;
  for (const int32_t one : found) {
    const Multiple& multiple = pool_.multiples_[static_cast<size_t>(one)];
    __int128 modulus = multiple.modulus;
    for (int32_t i = multiple.decimals; i < decimals; ++i) modulus *= 10;
    if (modulus > kMaxCommonMultiple) return kMaxCommonMultiple;
    common = common /
             std::gcd(static_cast<int64_t>(common), static_cast<int64_t>(modulus % common)) *
             modulus;
    if (common > kMaxCommonMultiple) return kMaxCommonMultiple;
  }
  return found.size() < 2 ? 1 : static_cast<int64_t>(common);
}

}  // namespace weft::constraint
