// Properties of an expression that follow from its form, computed once when it is made.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "constraint/regex/regex.h"

namespace weft::constraint {
namespace {

constexpr int32_t kMostEscapeBytes = 6;
constexpr int kMostHeight = 255;

std::optional<int32_t> LowestOf(const ByteSet& set) {
  for (size_t word = 0; word < set.words.size(); ++word) {
    if (set.words[word] == 0) continue;
    return static_cast<int32_t>(64 * word) + std::countr_zero(set.words[word]);
  }
  return std::nullopt;
}

}  // namespace

void RegexPool::Complete(Node* n, std::span<const int32_t> list) {
  SetOpening(n, list);
  if (n->kind == Kind::kConcat && node(n->a).nullable) LinkOptions(n);
  if (n->fact == Life::kUnknown && IsAliveByForm(*n, list)) n->fact = Life::kAlive;
  if (!n->nullable && MayBeginOf(*n).IsEmpty()) n->fact = Life::kDead;
  n->life = n->fact;
  n->exact &= !n->has_boolean;
  n->height = HeightOf(*n, list);
  if (!n->nullable) EstimateLeast(n, list, MayBeginOf(*n));
  n->farthest = FarthestOf(*n, list);
  n->way = WayOf(*n, list);
}

// Most expressions begin like one of their parts, or with a single byte.
void RegexPool::SetOpening(Node* n, std::span<const int32_t> list) {
  const bool follows = n->kind == Kind::kConcat && !node(n->a).nullable;
  if (follows || n->kind == Kind::kRepeat) {
    const Node& part = node(n->a);
    n->has_boolean = part.has_boolean || (follows && node(n->b).has_boolean);
    n->exact = part.exact;
    n->nullable = !follows && (n->b == 0 || part.nullable);
    n->edges = part.edges, n->first = part.first;
    return;
  }
  OpeningSets* known = nullptr;
  if (n->kind == Kind::kLiteral) {
    known = &openings_[static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)])];
    n->edges = known->edges, n->first = known->first;
    if (known->edges >= 0) return;
  }
  const Opening opening = Open(n, list);
  n->edges = InternSet(opening.edges);
  n->first = InternSet(opening.first);
  if (known != nullptr) *known = {n->edges, n->first};
}

// For a node that may begin like `part`.
void RegexPool::OpenPart(RegexId part, Node* n, Opening* opening) const {
  n->has_boolean |= node(part).has_boolean;
  n->exact &= node(part).exact;
  opening->edges = opening->edges | Edges(part);
  opening->first = opening->first | MayBegin(part);
}

void RegexPool::OpenParts(Node* n, std::span<const int32_t> list, Opening* opening) const {
  size_t nullable = 0;
  for (const RegexId part : list) {
    OpenPart(part, n, opening);
    nullable += node(part).nullable ? 1 : 0;
  }
  if (n->kind == Kind::kOr) {
    n->nullable = nullable > 0;
    return;
  }
  n->has_boolean = true;
  n->nullable = n->kind == Kind::kAnd ? nullable == list.size() : nullable == 1;
  if (n->kind != Kind::kAnd) return;
  for (const RegexId part : list) opening->first = opening->first & MayBegin(part);
}

// Also sets whether the empty text is accepted and whether there are intersections or complements.
// Called for a sequence only if its first part is optional.
RegexPool::Opening RegexPool::Open(Node* n, std::span<const int32_t> list) const {
  Opening opening;
  switch (n->kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
    case Kind::kBytes:
      opening.first = sets_[static_cast<size_t>(n->a)];
      opening.edges = opening.first.Edges();
      break;
    case Kind::kLiteral:
      opening.first = ByteSet::Of(static_cast<uint8_t>(texts_[static_cast<size_t>(n->a)]));
      opening.edges = opening.first.Edges();
      break;
    case Kind::kConcat:
      OpenPart(n->a, n, &opening);
      OpenPart(n->b, n, &opening);
      n->nullable = node(n->b).nullable;
      break;
    case Kind::kOr:
    case Kind::kAnd:
    case Kind::kOnlyOne:
      OpenParts(n, list, &opening);
      break;
    case Kind::kNot:
      OpenPart(n->a, n, &opening);
      n->nullable = !node(n->a).nullable;
      n->has_boolean = true;
      opening.first = ByteSet::All();
      break;
    case Kind::kRepeat:
      break;
    case Kind::kMultiple:
      opening.edges = opening.edges | ByteSet::Range('.', ':');
      opening.first = ByteSet::Range('0', '9') | ByteSet::Of('.');
      n->exact = false;
      n->nullable = IsMultiple(*n);
      break;
    case Kind::kRespelled:
    case Kind::kSpelled:
      OpenWritten(n, &opening);
      break;
    case Kind::kTexts:
      OpenTexts(n, &opening);
      break;
  }
  return opening;
}

void RegexPool::OpenTexts(Node* n, Opening* opening) const {
  const std::span<const TextPlace> listed = Listed(n->a, n->b);
  n->nullable = listed.front().length == n->c;
  for (size_t at = n->nullable ? 1 : 0; at < listed.size(); at = EndOfAlike(listed, at, n->c)) {
    const auto next = static_cast<uint8_t>(
        texts_[static_cast<size_t>(listed[at].offset) + static_cast<size_t>(n->c)]);
    opening->first.Add(next);
    opening->edges = opening->edges | ByteSet::Of(next).Edges();
  }
}

// For texts in another spelling.
void RegexPool::OpenWritten(Node* n, Opening* opening) const {
  OpenPart(n->a, n, opening);
  ByteSet &edges = opening->edges, &first = opening->first;
  if (n->kind == Kind::kRespelled) {
    n->has_boolean = true;  // it may be dead
    first = ByteSet::All();
    for (int byte = 0; byte <= 0x20; ++byte) edges.Add(byte);
    edges = edges | EdgesOfEscapes();
    return;
  }
  const ByteSet& escaped = EscapedBytes(static_cast<Escapes>(n->b));
  if (!(first & escaped).IsEmpty()) first = (first & ~escaped) | ByteSet::Of('\\');
  edges = edges | escaped.Edges() | ByteSet::Of('\\') | ByteSet::Of('\\' + 1);
  n->nullable = node(n->a).nullable;
}

bool RegexPool::IsAliveByForm(const Node& n, std::span<const int32_t> list) const {
  if (n.nullable || !n.has_boolean) return true;
  const auto alive = [&](RegexId part) { return node(part).fact == Life::kAlive; };
  if (n.kind == Kind::kOr) return std::ranges::any_of(list, alive);
  if (n.kind == Kind::kConcat) return alive(n.a) && alive(n.b);
  return n.kind == Kind::kRepeat && alive(n.a);
}

uint8_t RegexPool::HeightOf(const Node& n, std::span<const int32_t> list) const {
  int height = 0;
  if (n.kind == Kind::kConcat) height = node(n.b).height;
  const bool has_part = n.kind == Kind::kConcat || n.kind == Kind::kNot ||
                        n.kind == Kind::kRepeat || n.kind == Kind::kRespelled ||
                        n.kind == Kind::kSpelled;
  if (has_part) height = std::max(height, node(n.a).height + 1);
  for (const RegexId part : list) height = std::max(height, node(part).height + 1);
  return static_cast<uint8_t>(std::min(height, kMostHeight));
}

// For an intersection: a first byte after which one of its complements accepts everything.
std::optional<int32_t> RegexPool::AwayFrom(std::span<const int32_t> parts,
                                           const ByteSet& first) const {
  ByteSet away;
  for (const RegexId part : parts) {
    if (node(part).kind == Kind::kNot) away = away | ~MayBegin(node(part).a);
  }
  return LowestOf(away & first);
}

// For unions and intersections: takes the hint of the part that determines the length, if that byte
// may come.
int64_t RegexPool::EstimateParts(Node* n, std::span<const int32_t> list,
                                 const ByteSet& first) const {
  const bool all = n->kind == Kind::kAnd;
  const auto rank = [&](RegexId part) {
    const Node& p = node(part);
    const bool may_come = p.hint >= 0 && first.Has(p.hint);
    return std::pair(all ? -p.least : p.least, may_come ? 0 : 1);
  };
  const Node& decides = node(*std::ranges::min_element(list, {}, rank));
  n->hint = decides.hint;
  if (all) n->hint = AwayFrom(list, first).value_or(n->hint);
  if (n->hint < 0 || !first.Has(n->hint)) n->hint = LowestOf(first).value_or(-1);
  return decides.least;
}

// REQUIRES: the node does not accept the empty text.
void RegexPool::EstimateLeast(Node* n, std::span<const int32_t> list, const ByteSet& first) const {
  int64_t least = 1;
  switch (n->kind) {
    case Kind::kBytes:
      n->hint = LowestOf(first).value_or(-1);
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
    case Kind::kAnd:
      least = EstimateParts(n, list, first);
      break;
    case Kind::kRepeat:
      least = int64_t{node(n->a).least} * n->b;
      n->hint = node(n->a).hint;
      break;
    case Kind::kRespelled: {
      // A JSON escape can stand for a single byte.
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
    case Kind::kNot:
      n->hint = LowestOf(~MayBegin(n->a)).value_or(-1);
      break;
    case Kind::kTexts: {
      const TextPlace& shortest =
          *std::ranges::min_element(Listed(n->a, n->b), {}, &TextPlace::length);
      least = shortest.length - n->c;
      n->hint = static_cast<uint8_t>(
          texts_[static_cast<size_t>(shortest.offset) + static_cast<size_t>(n->c)]);
      break;
    }
    case Kind::kNothing:
    case Kind::kEmpty:
      break;
  }
  n->least = static_cast<int32_t>(std::clamp<int64_t>(least, 1, kManyBytes));
}

}  // namespace weft::constraint
