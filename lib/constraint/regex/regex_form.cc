// Properties of an expression that follow from its form, computed once when it is made.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "constraint/regex/new_node.h"

namespace weft::constraint {
namespace {

constexpr int32_t kMaxEscapeBytes = 6;
constexpr int kMaxHeight = 255;

std::optional<int32_t> LowestOf(const ByteSet& set) {
  for (size_t word = 0; word < set.words.size(); ++word) {
    if (set.words[word] == 0) continue;
    return static_cast<int32_t>(64 * word) + std::countr_zero(set.words[word]);
  }
  return std::nullopt;
}

}  // namespace

void RegexPool::NewNode::Complete() {
  SetOpening();
  if (n_.kind == Kind::kConcat && Of(n_.a).nullable) pool_.LinkOptions(&n_);
  if (n_.fact == Life::kUnknown && IsAliveByForm()) n_.fact = Life::kAlive;
  if (!n_.nullable && MayBegin().IsEmpty()) n_.fact = Life::kDead;
  n_.life = n_.fact;
  n_.exact &= !n_.has_boolean;
  n_.height = Height();
  if (!n_.nullable) EstimateMin(MayBegin());
  n_.farthest = Farthest();
  n_.way = Way();
}

// Most expressions begin like one of their parts, or with a single byte.
void RegexPool::NewNode::SetOpening() {
  const bool follows = n_.kind == Kind::kConcat && !Of(n_.a).nullable;
  if (follows || n_.kind == Kind::kRepeat) {
    const Node& part = Of(n_.a);
    n_.has_boolean = part.has_boolean || (follows && Of(n_.b).has_boolean);
    n_.exact = part.exact;
    n_.nullable = !follows && (n_.b == 0 || part.nullable);
    n_.edges = part.edges, n_.first = part.first;
    return;
  }
  regex::OpeningSets* known = nullptr;
  if (n_.kind == Kind::kLiteral) {
    known = &pool_.openings_[static_cast<uint8_t>(pool_.texts_[static_cast<size_t>(n_.a)])];
    n_.edges = known->edges, n_.first = known->first;
    if (known->edges >= 0) return;
  }
  const Opening opening = Open();
  n_.edges = pool_.InternSet(opening.edges);
  n_.first = pool_.InternSet(opening.first);
  if (known != nullptr) *known = {n_.edges, n_.first};
}

// For a node that may begin like `part`.
void RegexPool::NewNode::OpenPart(RegexId part, Opening* opening) {
  n_.has_boolean |= Of(part).has_boolean;
  n_.exact &= Of(part).exact;
  opening->edges = opening->edges | pool_.Set(Of(part).edges);
  opening->first = opening->first | pool_.Set(Of(part).first);
}

void RegexPool::NewNode::OpenParts(Opening* opening) {
  size_t nullable = 0;
  for (const RegexId part : list_) {
    OpenPart(part, opening);
    nullable += Of(part).nullable ? 1 : 0;
  }
  if (n_.kind == Kind::kOr) {
    n_.nullable = nullable > 0;
    return;
  }
  n_.has_boolean = true;
  n_.nullable = n_.kind == Kind::kAnd ? nullable == list_.size() : nullable == 1;
  if (n_.kind != Kind::kAnd) return;
  for (const RegexId part : list_) opening->first = opening->first & pool_.Set(Of(part).first);
}

// Also sets whether the empty text is accepted and whether there are intersections or complements.
// Called for a sequence only if its first part is optional.
regex::Opening RegexPool::NewNode::Open() {
  Opening opening;
  switch (n_.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      opening.first = pool_.Set(n_.a);
      opening.edges = opening.first.Edges();
      break;
    case Kind::kLiteral:
      opening.first = ByteSet::Of(static_cast<uint8_t>(pool_.texts_[static_cast<size_t>(n_.a)]));
      opening.edges = opening.first.Edges();
      break;
    case Kind::kConcat:
      OpenPart(n_.a, &opening);
      OpenPart(n_.b, &opening);
      n_.nullable = Of(n_.b).nullable;
      break;
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kOnlyOne:
      OpenParts(&opening);
      break;
    case Kind::kNot:
      OpenPart(n_.a, &opening);
      n_.nullable = !Of(n_.a).nullable;
      n_.has_boolean = true;
      opening.first = ByteSet::All();
      break;
    case Kind::kRepeat:
      break;
    case Kind::kMultiple:
      opening.edges = opening.edges | ByteSet::Range('.', ':');
      opening.first = ByteSet::Range('0', '9') | ByteSet::Of('.');
      n_.exact = false;
      n_.nullable = pool_.IsMultiple(n_);
      break;
    case Kind::kRespelled:
    case Kind::kSpelled:
      OpenWritten(&opening);
      break;
    case Kind::kTexts:
      OpenTexts(&opening);
      break;
  }
  return opening;
}

void RegexPool::NewNode::OpenTexts(Opening* opening) {
  const std::span<const TextPlace> listed = pool_.Listed(n_.a, n_.b);
  n_.nullable = listed.front().length == n_.c;
  for (size_t at = n_.nullable ? 1 : 0; at < listed.size();
       at = pool_.EndOfAlike(listed, at, n_.c)) {
    const auto next = static_cast<uint8_t>(
        pool_.texts_[static_cast<size_t>(listed[at].offset) + static_cast<size_t>(n_.c)]);
    opening->first.Add(next);
    opening->edges = opening->edges | ByteSet::Of(next).Edges();
  }
}

// For texts in another spelling.
void RegexPool::NewNode::OpenWritten(Opening* opening) {
  OpenPart(n_.a, opening);
  ByteSet &edges = opening->edges, &first = opening->first;
  if (n_.kind == Kind::kRespelled) {
    n_.has_boolean = true;  // it may be dead
    first = ByteSet::All();
    for (int byte = 0; byte <= 0x20; ++byte) edges.Add(byte);
    edges = edges | pool_.EdgesOfEscapes();
    return;
  }
  const ByteSet& escaped = pool_.EscapedBytes(static_cast<Escapes>(n_.b));
  if (!(first & escaped).IsEmpty()) first = (first & ~escaped) | ByteSet::Of('\\');
  edges = edges | escaped.Edges() | ByteSet::Of('\\') | ByteSet::Of('\\' + 1);
  n_.nullable = Of(n_.a).nullable;
}

bool RegexPool::NewNode::IsAliveByForm() const {
  if (n_.nullable || !n_.has_boolean) return true;
  const auto alive = [&](RegexId part) { return Of(part).fact == Life::kAlive; };
  if (n_.kind == Kind::kOr) return std::ranges::any_of(list_, alive);
  if (n_.kind == Kind::kConcat) return alive(n_.a) && alive(n_.b);
  return n_.kind == Kind::kRepeat && alive(n_.a);
}

uint8_t RegexPool::NewNode::Height() const {
  int height = 0;
  if (n_.kind == Kind::kConcat) height = Of(n_.b).height;
  const bool has_part = n_.kind == Kind::kConcat || n_.kind == Kind::kNot ||
                        n_.kind == Kind::kRepeat || n_.kind == Kind::kRespelled ||
                        n_.kind == Kind::kSpelled;
  if (has_part) height = std::max(height, Of(n_.a).height + 1);
  for (const RegexId part : list_) height = std::max(height, Of(part).height + 1);
  return static_cast<uint8_t>(std::min(height, kMaxHeight));
}

// For an intersection: a first byte after which one of its complements accepts everything.
std::optional<int32_t> RegexPool::NewNode::AwayFrom(const ByteSet& first) const {
  ByteSet away;
  for (const RegexId part : list_) {
    if (Of(part).kind == Kind::kNot) away = away | ~pool_.Set(Of(Of(part).a).first);
  }
  return LowestOf(away & first);
}

// For unions and intersections: takes the hint of the part that determines the length, if that byte
// may come.
int64_t RegexPool::NewNode::EstimateParts(const ByteSet& first) {
  const bool all = n_.kind == Kind::kAnd;
  const auto rank = [&](RegexId part) {
    const Node& p = Of(part);
    const bool may_come = p.hint >= 0 && first.Has(p.hint);
    return std::pair(all ? -p.least : p.least, may_come ? 0 : 1);
  };
  const Node& decides = Of(*std::ranges::min_element(list_, {}, rank));
  n_.hint = decides.hint;
  if (all) n_.hint = AwayFrom(first).value_or(n_.hint);
  if (n_.hint < 0 || !first.Has(n_.hint)) n_.hint = LowestOf(first).value_or(-1);
  return decides.least;
}

// REQUIRES: the node does not accept the empty text.
void RegexPool::NewNode::EstimateMin(const ByteSet& first) {
  int64_t least = 1;
  switch (n_.kind) {
    case Kind::kBytes:
      n_.hint = LowestOf(first).value_or(-1);
      break;
    case Kind::kLiteral:
      least = n_.b;
      n_.hint = static_cast<uint8_t>(pool_.texts_[static_cast<size_t>(n_.a)]);
      break;
    case Kind::kConcat:
      least = int64_t{Of(n_.a).least} + Of(n_.b).least;
      n_.hint = Of(Of(n_.a).nullable ? n_.b : n_.a).hint;
      break;
    case Kind::kOr:
    case Kind::kOnlyOne:
    case Kind::kAnd:
      least = EstimateParts(first);
      break;
    case Kind::kRepeat:
      least = int64_t{Of(n_.a).least} * n_.b;
      n_.hint = Of(n_.a).hint;
      break;
    case Kind::kRespelled: {
      // A JSON escape can stand for a single byte.
      const int32_t json = Of(n_.a).least - 1;
      least = json / kMaxEscapeBytes + (n_.b != 0 ? 1 : 0);
      n_.hint = json == 0 && n_.b != 0 ? n_.b : Of(n_.a).hint;
      break;
    }
    case Kind::kMultiple:
      least = pool_.EstimateMultiple(&n_);
      break;
    case Kind::kSpelled: {
      least = Of(n_.a).least;
      const int32_t hint = Of(n_.a).hint;
      const bool escaped = hint >= 0 && pool_.EscapedBytes(static_cast<Escapes>(n_.b)).Has(hint);
      n_.hint = escaped ? '\\' : hint;
      break;
    }
    case Kind::kNot:
      n_.hint = LowestOf(~pool_.Set(Of(n_.a).first)).value_or(-1);
      break;
    case Kind::kTexts: {
      const TextPlace& shortest =
          *std::ranges::min_element(pool_.Listed(n_.a, n_.b), {}, &TextPlace::length);
      least = shortest.length - n_.c;
      n_.hint = static_cast<uint8_t>(
          pool_.texts_[static_cast<size_t>(shortest.offset) + static_cast<size_t>(n_.c)]);
      break;
    }
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
  }
  n_.least = static_cast<int32_t>(std::clamp<int64_t>(least, 1, regex::kManyBytes));
}

int32_t RegexPool::NewNode::Farthest() const {
  const auto farthest = [&](RegexId part) { return int64_t{Of(part).farthest}; };
  int64_t bytes = regex::kManyBytes;
  switch (n_.kind) {
    case Kind::kEmpty:
      bytes = 0;
      break;
    case Kind::kBytes:
    case Kind::kLiteral:
      bytes = n_.least;
      break;
    case Kind::kConcat:
      bytes = std::max(farthest(n_.a) + Of(n_.b).least, farthest(n_.b));
      break;
    case Kind::kOr:
      bytes = 0;
      for (const RegexId part : list_) bytes = std::max(bytes, farthest(part));
      break;
    case Kind::kRepeat:
      bytes = farthest(n_.a) + int64_t{std::max(n_.b - 1, 0)} * Of(n_.a).least;
      break;
    case Kind::kTexts:
      bytes = std::ranges::max(pool_.Listed(n_.a, n_.b), {}, &TextPlace::length).length - n_.c;
      break;
    default:
      break;
  }
  return static_cast<int32_t>(std::min<int64_t>(bytes, regex::kManyBytes));
}

// REQUIRES: the node's other properties are known.
int32_t RegexPool::NewNode::Way() const {
  const auto way = [&](RegexId part) { return int64_t{Of(part).way}; };
  int64_t bytes = regex::kManyBytes;
  if (n_.nullable) {
    bytes = 0;
  } else if (n_.farthest < regex::kManyBytes) {
    bytes = n_.least;
  } else if (n_.kind == Kind::kConcat) {
    bytes = way(n_.a) + way(n_.b);
  } else if (n_.kind == Kind::kRepeat) {
    bytes = way(n_.a) * n_.b;
  } else if (n_.kind == Kind::kOr) {
    for (const RegexId part : list_) bytes = std::min(bytes, way(part));
  }
  return static_cast<int32_t>(std::min<int64_t>(bytes, regex::kManyBytes));
}

}  // namespace weft::constraint
