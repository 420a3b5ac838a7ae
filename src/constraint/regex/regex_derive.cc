// Derivatives of expressions by bytes.
#include <algorithm>
#include <bit>
#include <utility>

#include "constraint/regex/regex.h"

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

int32_t StepMeter::Learn(int32_t known, int first, int last, const Cost& cost) {
  return LearnTo(-1, known, first, last, cost);
}

int32_t StepMeter::AddSearch(int64_t steps) {
  dear_.push_back({.cost = {.search = steps}});
  return static_cast<int32_t>(dear_.size()) - 1;
}

int32_t StepMeter::LearnTo(int32_t search, int32_t known, int first, int last, const Cost& cost) {
  const auto id = static_cast<int32_t>(dear_.size());
  dear_.push_back({.first = static_cast<uint8_t>(first),
                   .last = static_cast<uint8_t>(last),
                   .cost = cost,
                   .next = known,
                   .search = search});
  Pass(id, static_cast<uint8_t>(first));
  return id;
}

void StepMeter::Pass(int32_t known, uint8_t byte) {
  for (int32_t i = known; i >= 0; i = dear_[static_cast<size_t>(i)].next) {
    Dear& dear = dear_[static_cast<size_t>(i)];
    if (byte < dear.first || byte > dear.last) continue;
    if (is_aside_) {
      aside_.step = std::min(aside_.step + dear.cost.step, kTooMuch);
      aside_.search = std::min(aside_.search + dear.cost.search, kTooMuch);
    } else if (std::exchange(dear.passed, resets_) != resets_) {
      Spend(dear.cost.step);
      Dear& searched = dear.search < 0 ? dear : dear_[static_cast<size_t>(dear.search)];
      const bool counts = dear.search < 0 || std::exchange(searched.passed, resets_) != resets_;
      if (counts) Spend(searched.cost.search);
    }
    return;
  }
}

// The parts of a union that may begin with the byte.
std::vector<RegexId> RegexPool::PartsWith(RegexId id, uint8_t byte) {
  const std::span<const int32_t> all = Parts(node(id));
  if (all.size() > kLargeUnion) {
    LargeUnion& large = large_unions_[id];
    if (large.by_byte == nullptr && ++large.asked > kAskedOften) {
      auto made = std::make_shared<PartsByByte>();
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
      Spend(size, static_cast<int64_t>(sizeof(PartsByByte)) + 8 * size);
    }
    if (large.by_byte != nullptr) return (*large.by_byte)[byte];
    Spend(static_cast<int64_t>(all.size()) / 8, 0);
  }
  std::vector<RegexId> some;
  for (const RegexId part : all) {
    if (MayBegin(part).Has(byte)) some.push_back(part);
  }
  return some;
}

RegexId RegexPool::RawDerive(RegexId id, uint8_t byte) {
  Step(1);
  if (exhausted_ || steps_ > step_end_ || !MayBegin(id).Has(byte)) return kNothing;
  const Node& n = node(id);
  const bool is_dear =
      IsList(n.kind) || n.kind == Kind::kTexts || (n.kind == Kind::kConcat && node(n.a).nullable);
  if (!is_dear) return RawDeriveAnew(id, byte);
  if (recent_.entries.empty()) {
    recent_.entries.resize(kRecent);
    Spend(0, static_cast<int64_t>(kRecent * sizeof(Recent::Entry)));
  }
  const uint64_t hash = MixHash(0, static_cast<uint64_t>(id) << 8 | byte);
  const size_t slot = static_cast<size_t>(hash >> 40) % kRecent;
  if (const Recent::Entry& known = recent_.entries[slot]; known.id == id && known.byte == byte) {
    steps_ += known.steps;
    Spend(known.work, 0);
    return exhausted_ || steps_ > step_end_ ? kNothing : known.to;
  }
  const int64_t steps = steps_, work = work_;
  const RegexId to = RawDeriveAnew(id, byte);
  if (!exhausted_ && steps_ <= step_end_) {
    recent_.entries[slot] = {.id = id,
                             .to = to,
                             .steps = static_cast<int32_t>(steps_ - steps),
                             .work = static_cast<int32_t>(work_ - work),
                             .byte = byte};
  }
  return to;
}

RegexId RegexPool::RawDeriveAnew(RegexId id, uint8_t byte) {
  const Form n = node(id);
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
    case Kind::kConcat:
      return node(n.a).nullable ? DeriveOptions(id, byte) : Concat(RawDerive(n.a, byte), n.b);
    case Kind::kOr:
    case Kind::kAnd: {
      std::vector<RegexId> parts;
      if (n.kind == Kind::kOr) {
        parts = PartsWith(id, byte);
      } else {
        parts.assign(Parts(n).begin(), Parts(n).end());
      }
      Step(static_cast<int64_t>(parts.size()) / 2);
      for (RegexId& part : parts) {
        part = RawDerive(part, byte);
        if (part == kNothing && n.kind == Kind::kAnd) return kNothing;
      }
      return n.kind == Kind::kOr ? Or(std::move(parts)) : And(std::move(parts));
    }
    case Kind::kOnlyOne: {
      std::vector<RegexId> parts(Parts(n).begin(), Parts(n).end());
      Step(static_cast<int64_t>(parts.size()) / 2);
      for (RegexId& part : parts) part = RawDerive(part, byte);
      return OnlyOne(std::move(parts));
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
    case Kind::kRespelled:
      return DeriveRespelled(n, byte);
    case Kind::kSpelled:
      return DeriveSpelled(n, byte);
    case Kind::kTexts:
      return DeriveTexts(n, byte);
  }
  return kNothing;
}

RegexPool::Derivative RegexPool::TryDerive(RegexId id, uint8_t byte) {
  if (const int32_t known = node(id).ahead; known >= 0) {
    const Ahead& ahead = ahead_[static_cast<size_t>(known)];
    if (ahead.made.to != kNothing && ahead.byte == byte) return ahead.made;
  }
  const int64_t before = steps_;
  step_end_ = most_step_ == INT64_MAX ? INT64_MAX : steps_ + most_step_;
  // Not through recent_: the state's own row keeps the result.
  Step(1);
  Derivative made;
  if (!exhausted_ && MayBegin(id).Has(byte)) made.to = RawDeriveAnew(id, byte);
  const bool too_long = steps_ > std::exchange(step_end_, INT64_MAX);
  made.steps = too_long ? StepMeter::kTooMuch : steps_ - before;
  if (too_long) made.to = kNothing;
  return made;
}

RegexId RegexPool::DeriveMissing(RegexId id, uint8_t byte) {
  if (id == kNothing || id == kEmpty || meter_.spent() > most_spent_) return kNothing;
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
  if (exhausted_) return kNothing;
  Node& n = nodes_[static_cast<size_t>(id)];
  if (cost.step <= kDearDerivative) cost.step = 0;
  if (cost.search <= StepMeter::kDearSearch) cost.search = 0;
  if (cost.Sum() > 0) {
    Spend(0, 104);
    int32_t search = -1;
    if (cost.search > 0 && cost.search == node(made.to).search) {
      Node& to = nodes_[static_cast<size_t>(made.to)];
      if (to.search_dear < 0) to.search_dear = meter_.AddSearch(cost.search);
      search = to.search_dear;
    }
    n.dear = meter_.LearnTo(search, n.dear, first, end - 1, cost);
  }
  const bool is_only = n.only_first > n.only_last;
  if (!n.row.exists() && is_only && MayBegin(id).Has(byte)) {
    n.only_first = static_cast<uint8_t>(first);
    n.only_last = static_cast<uint8_t>(end - 1);
    n.only = next;
    return next;
  }
  if (!n.row.exists()) {
    const size_t before = rows_.bytes();
    const ByteSet& may_come = MayBegin(id);
    n.row = rows_.Add(edges, [&](int b) { return may_come.Has(b) ? -1 : kNothing; });
    if (!is_only) rows_.Set(n.row, n.only_first, n.only);
    Spend(1, static_cast<int64_t>(rows_.bytes() - before));
  }
  rows_.Set(n.row, byte, next);
  return next;
}

bool RegexPool::Accepts(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = Derive(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return AcceptsEmpty(id);
}

ByteSet RegexPool::Edges(RegexId id) const { return sets_[static_cast<size_t>(node(id).edges)]; }

ByteSet RegexPool::FirstBytes(RegexId id, int enough) {
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

bool RegexPool::HasFirstBytes(RegexId id, int least) {
  return MayBegin(id).Count() >= least && FirstBytes(id, least).Count() >= least;
}

}  // namespace weft::constraint
