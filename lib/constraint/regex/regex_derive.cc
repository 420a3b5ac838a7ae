// Derivatives of expressions by bytes.
#include <algorithm>
#include <bit>
#include <utility>

#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// The number of recent derivatives that are kept.
constexpr size_t kRecent = 4096;
// Larger unions get an index by first byte once they have been asked often.
constexpr int32_t kLargeUnion = 48;
constexpr int kAskedOften = 8;
// Cheaper derivatives are not metered.
constexpr int64_t kDearDerivative = 64;
}  // namespace

// The parts of a union that may begin with the byte.
std::vector<RegexId> RegexWalk::PartsWith(RegexId id, uint8_t byte) {
  const std::span<const int32_t> all = pool_.Parts(node(id));
  if (all.size() > kLargeUnion) {
    regex::LargeUnion& large = state_.large_unions[id];
    if (large.by_byte == nullptr && ++large.asked > kAskedOften) {
      auto made = std::make_shared<regex::LargeUnion::PartsByByte>();
      int64_t size = 0;
      for (const RegexId part : all) {
        const ByteSet& first = MayBegin(part);
        for (size_t word = 0; word < first.words.size(); ++word) {
          for (uint64_t left = first.words[word]; left != 0; left &= left - 1, ++size) {
            (*made)[64 * word + static_cast<size_t>(std::countr_zero(left))].push_back(part);
          }
        }
      }
      large.by_byte = std::move(made);
      budget().Spend(size, static_cast<int64_t>(sizeof(regex::LargeUnion::PartsByByte)) + 8 * size);
    }
    if (large.by_byte != nullptr) return (*large.by_byte)[byte];
    budget().Spend(static_cast<int64_t>(all.size()) / 8, 0);
  }
  std::vector<RegexId> some;
  for (const RegexId part : all) {
    if (MayBegin(part).Has(byte)) some.push_back(part);
  }
  return some;
}

RegexId RegexWalk::RawDerive(RegexId id, uint8_t byte) {
  budget().Step(1);
  if (budget().exhausted() || budget().steps() > state_.step_end || !MayBegin(id).Has(byte))
    return kNothing;
  const Node& n = node(id);
  const bool is_dear = pool_.IsList(n.kind) || n.kind == Kind::kTexts ||
                       (n.kind == Kind::kConcat && node(n.a).nullable);
  if (!is_dear) return RawDeriveAnew(id, byte);
  if (state_.recent.entries.empty()) {
    state_.recent.entries.resize(kRecent);
    budget().Spend(0, static_cast<int64_t>(kRecent * sizeof(regex::Recent::Entry)));
  }
  const uint64_t hash = MixHash(0, static_cast<uint64_t>(id) << 8 | byte);
  const size_t slot = static_cast<size_t>(hash >> 40) % kRecent;
  if (const regex::Recent::Entry& known = state_.recent.entries[slot];
      known.id == id && known.byte == byte) {
    budget().CountSteps(known.steps);
    budget().Spend(known.work, 0);
    return budget().exhausted() || budget().steps() > state_.step_end ? kNothing : known.to;
  }
  const int64_t steps = budget().steps(), work = budget().work();
  const RegexId to = RawDeriveAnew(id, byte);
  if (!budget().exhausted() && budget().steps() <= state_.step_end) {
    state_.recent.entries[slot] = {.id = id,
                                   .to = to,
                                   .steps = static_cast<int32_t>(budget().steps() - steps),
                                   .work = static_cast<int32_t>(budget().work() - work),
                                   .byte = byte};
  }
  return to;
}

RegexId RegexWalk::RawDeriveAnew(RegexId id, uint8_t byte) {
  const Form n = node(id);
  switch (n.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return pool_.Set(n.a).Has(byte) ? kEmpty : kNothing;
    case Kind::kLiteral:
      if (static_cast<uint8_t>(pool_.texts_[static_cast<size_t>(n.a)]) != byte) return kNothing;
      return pool_.Literal(std::string_view(pool_.texts_)
                               .substr(static_cast<size_t>(n.a) + 1, static_cast<size_t>(n.b) - 1));
    case Kind::kConcat:
      return node(n.a).nullable ? DeriveOptions(id, byte) : pool_.Concat(RawDerive(n.a, byte), n.b);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts;
      if (n.kind == Kind::kOr) {
        parts = PartsWith(id, byte);
      } else {
        parts.assign(pool_.Parts(n).begin(), pool_.Parts(n).end());
      }
      budget().Step(static_cast<int64_t>(parts.size()) / 2);
      for (RegexId& part : parts) {
        part = RawDerive(part, byte);
        if (part == kNothing && n.kind == Kind::kAnd) return kNothing;
      }
      return n.kind == Kind::kOr ? pool_.Or(std::move(parts)) : pool_.And(std::move(parts));
    }
    case Kind::kOnlyOne: {
      std::vector<RegexId> parts(pool_.Parts(n).begin(), pool_.Parts(n).end());
      budget().Step(static_cast<int64_t>(parts.size()) / 2);
      for (RegexId& part : parts) part = RawDerive(part, byte);
      return pool_.OnlyOne(std::move(parts));
    }
    case Kind::kNot:
      return pool_.Not(RawDerive(n.a, byte));
    case Kind::kRepeat: {
      const RegexId rest =
          pool_.Repeat(n.a, std::max(n.b - 1, 0), n.c == kUnlimited ? kUnlimited : n.c - 1);
      return pool_.Concat(RawDerive(n.a, byte), rest);
    }
    case Kind::kMultiple:
      return pool_.DeriveMultiple(n, byte);
    case Kind::kRespelled:
      return DeriveRespelled(n, byte);
    case Kind::kSpelled:
      return DeriveSpelled(n, byte);
    case Kind::kTexts:
      return pool_.DeriveTexts(n, byte);
  }
  return kNothing;
}

RegexWalk::Derivative RegexWalk::TryDerive(RegexId id, uint8_t byte) {
  if (const int32_t known = node(id).ahead; known >= 0) {
    const Ahead& ahead = state_.ahead[static_cast<size_t>(known)];
    if (ahead.made.to != kNothing && ahead.byte == byte) return ahead.made;
  }
  const int64_t before = budget().steps();
  state_.step_end = state_.max_step == INT64_MAX ? INT64_MAX : budget().steps() + state_.max_step;
  // Not through state_.recent: the state's own row keeps the result.
  budget().Step(1);
  Derivative made;
  if (!budget().exhausted() && MayBegin(id).Has(byte)) made.to = RawDeriveAnew(id, byte);
  const bool too_long = budget().steps() > std::exchange(state_.step_end, INT64_MAX);
  made.steps = too_long ? StepMeter::kTooMuch : budget().steps() - before;
  if (too_long) made.to = kNothing;
  return made;
}

RegexId RegexWalk::DeriveMissing(RegexId id, uint8_t byte) {
  if (id == kNothing || id == kEmpty || budget().meter().spent() > state_.max_spent)
    return kNothing;
  const ByteSet edges = Edges(id);
  int first = byte, end = byte + 1;
  while (!edges.Has(first)) --first;
  while (end < 256 && !edges.Has(end)) ++end;
  // Derive by the same byte whichever byte of the range is asked for, so that the cost is the same.
  const int32_t hint = node(id).hint;
  const bool has_hint = hint >= first && hint < end;
  const Derivative made = TryDerive(id, static_cast<uint8_t>(has_hint ? hint : first));
  const RegexId next = FindLife(made.to) == Life::kAlive ? made.to : kNothing;
  StepMeter::Cost cost{made.steps, SearchBehind(id, made.to)};
  if (budget().exhausted()) return kNothing;
  Node& n = At(id);
  if (cost.step <= kDearDerivative) cost.step = 0;
  if (cost.search <= StepMeter::kDearSearch) cost.search = 0;
  if (cost.Sum() > 0) {
    budget().Spend(0, 104);
    int32_t search = -1;
    if (cost.search > 0 && cost.search == node(made.to).search) {
      Node& to = At(made.to);
      if (to.search_dear < 0) to.search_dear = budget().meter().AddSearch(cost.search);
      search = to.search_dear;
    }
    n.dear = budget().meter().LearnTo(search, n.dear, first, end - 1, cost);
  }
  const bool is_only = n.only_first > n.only_last;
  if (!n.row.exists() && is_only && MayBegin(id).Has(byte)) {
    n.only_first = static_cast<uint8_t>(first);
    n.only_last = static_cast<uint8_t>(end - 1);
    n.only = next;
    return next;
  }
  if (!n.row.exists()) {
    const size_t before = state_.rows.bytes();
    const ByteSet& may_come = MayBegin(id);
    n.row = state_.rows.Add(edges, [&](int b) { return may_come.Has(b) ? -1 : kNothing; });
    if (!is_only) state_.rows.Set(n.row, n.only_first, n.only);
    budget().Spend(1, static_cast<int64_t>(state_.rows.bytes() - before));
  }
  state_.rows.Set(n.row, byte, next);
  return next;
}

bool RegexWalk::Accepts(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = Derive(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return pool_.AcceptsEmpty(id);
}

ByteSet RegexWalk::FirstBytes(RegexId id, int enough) {
  const ByteSet may_come = MayBegin(id);
  if (node(id).exact) return may_come;
  const ByteSet edges = Edges(id);
  ByteSet first;
  bool live = false;
  for (int byte = 0; byte < 256 && enough > 0; ++byte) {
    if (edges.Has(byte)) {
      live = may_come.Has(byte) && Derive(id, static_cast<uint8_t>(byte)) != kNothing;
    }
    if (!live) continue;
    first.Add(byte);
    --enough;
  }
  return first;
}

bool RegexWalk::HasFirstBytes(RegexId id, int least) {
  return MayBegin(id).Count() >= least && FirstBytes(id, least).Count() >= least;
}

// For a sequence whose first part, and perhaps more, is optional.
RegexId RegexWalk::DeriveOptions(RegexId id, uint8_t byte) {
  std::vector<RegexId> parts;
  int64_t passed = 0;
  while (node(id).options >= 0 && MayBegin(id).Has(byte)) {
    const Node n = node(id);
    ++passed;
    if (!MayBegin(n.a).Has(byte)) {
      id = n.b;
      continue;
    }
    parts.push_back(pool_.Concat(RawDerive(n.a, byte), n.b));
    // What a later plain part leaves is a subset of what this one leaves, so skip these.
    const RegexId plain_end = pool_.options_[static_cast<size_t>(n.options)].plain_end;
    id = plain_end != kNothing ? plain_end : n.b;
    if (budget().exhausted()) return kNothing;
  }
  budget().Step(passed / 4);
  parts.push_back(RawDerive(id, byte));
  return pool_.Or(std::move(parts));
}

}  // namespace weft::constraint
